//! JSON of recurrent nets: GuitarML's Proteus, and RTNeural's form of Keras that AIDA-X plays.

use super::{
    About, Amp, AmpFormat, Error, Limits, Size,
    json::At,
    net::{Activation, Cell, Conv, Net, Recurrent},
};
use quiet_types::SampleRate;

/// Whether the top of a file looks like one of Proteus.
pub(super) fn is_proteus(at: &At<'_>) -> Result<bool, Error> {
    Ok(at.get("state_dict")?.is_some())
}

/// Whether the top of a file looks like one of RTNeural.
pub(super) fn is_keras(at: &At<'_>) -> Result<bool, Error> {
    Ok(at.get("layers")?.is_some() && at.get("in_shape")?.is_some())
}

/// A file of Proteus: an LSTM of PyTorch, its output added to the input, at 44.1 kHz.
pub(super) fn proteus(at: &At<'_>) -> Result<Amp, Error> {
    let mut limits = Limits::default();
    let data = at.need("model_data")?;
    data.only(&[
        "model",
        "input_size",
        "skip",
        "output_size",
        "unit_type",
        "num_layers",
        "hidden_size",
        "bias_fl",
    ])?;
    let only = |key: &str, wanted: &str| match data.get(key)? {
        Some(value) if value.text()? != wanted => {
            Err(value.refuse(format!("is {:?}; {wanted:?} is known", value.text()?)))
        }
        _ => Ok(()),
    };
    only("model", "SimpleRNN")?;
    only("unit_type", "LSTM")?;
    for key in ["output_size", "num_layers"] {
        if let Some(value) = data.get(key)? {
            value.whole(1, 1)?;
        }
    }
    if let Some(bias) = data.get("bias_fl")?
        && !bias.truth()?
    {
        return Err(bias.refuse("is false; a net without biases is not known"));
    }
    let skip = match data.get("skip")? {
        Some(skip) => skip.whole(0, 1)? == 1,
        None => true,
    };
    let inputs = data.need("input_size")?.whole(1, 3)?;
    let hidden = data.need("hidden_size")?.whole(1, Limits::HIDDEN)?;
    let state = at.need("state_dict")?;
    state.only(&[
        "rec.weight_ih_l0",
        "rec.weight_hh_l0",
        "rec.bias_ih_l0",
        "rec.bias_hh_l0",
        "lin.weight",
        "lin.bias",
    ])?;
    let rows = 4 * hidden;
    limits.take(rows * (inputs + hidden + 2) + hidden + 1, &state)?;
    let turned = |all: Vec<f32>, columns: usize| {
        let mut turned = vec![0.0; all.len()];
        for (row, line) in all.chunks_exact(columns).enumerate() {
            for (column, w) in line.iter().enumerate() {
                turned[column * rows + row] = *w;
            }
        }
        turned
    };
    let weights = turned(state.need("rec.weight_ih_l0")?.matrix(rows, inputs)?, inputs);
    let recurrent = turned(state.need("rec.weight_hh_l0")?.matrix(rows, hidden)?, hidden);
    let bias = state.need("rec.bias_ih_l0")?.vector(rows)?;
    let more = state.need("rec.bias_hh_l0")?.vector(rows)?;
    let cell = Cell {
        gru: false,
        inputs,
        hidden,
        weights,
        recurrent,
        bias: bias.iter().zip(&more).map(|(a, b)| a + b).collect(),
        recurrent_bias: Vec::new(),
        state: vec![0.0; hidden],
        cell: vec![0.0; hidden],
    };
    let dense = Conv {
        inputs: hidden,
        outputs: 1,
        taps: 1,
        dilation: 1,
        weights: state.need("lin.weight")?.matrix(1, hidden)?,
        bias: state.need("lin.bias")?.vector(1)?,
    };
    let net = Recurrent {
        cells: vec![cell],
        dense: vec![(dense, Activation::Identity)],
        skip,
        gains: (1.0, 1.0),
        prewarm: 0,
    };
    Ok(Amp {
        about: About {
            format: AmpFormat::Proteus,
            architecture: "LSTM".to_owned(),
            rate: SampleRate(44_100),
            rate_assumed: true,
            knobs: inputs - 1,
            weights: limits.weights(),
            ..About::default()
        },
        sizes: vec![Size::whole(Net::Recurrent(net))],
    })
}

/// A file of RTNeural with the keys that AIDA-X adds.
pub(super) fn keras(at: &At<'_>) -> Result<Amp, Error> {
    at.only(&[
        "in_shape",
        "layers",
        "in_skip",
        "in_gain",
        "out_gain",
        "input_batch",
        "output_batch",
        "metadata",
    ])?;
    let mut limits = Limits::default();
    let inputs = last_of(&at.need("in_shape")?, 3)?;
    let skip = match at.get("in_skip")? {
        Some(skip) => skip.whole(0, 1)? == 1,
        None => false,
    };
    let gain = |key| match at.get(key)? {
        Some(value) => {
            let db = value.number()?;
            if !(-120.0..=120.0).contains(&db) {
                return Err(value.refuse(format!("is {db} dB; -120 to 120 are possible")));
            }
            Ok(10f64.powf(db / 20.0) as f32)
        }
        None => Ok(1.0),
    };
    let gains = (gain("in_gain")?, gain("out_gain")?);
    let mut rate = 48_000;
    let mut about = About { format: AmpFormat::Keras, rate_assumed: true, ..About::default() };
    if let Some(meta) = at.get("metadata")? {
        if let Some(given) = meta.get("samplerate")? {
            rate = match given.text() {
                Ok(text) => match text.trim().parse() {
                    Ok(rate @ 1..=1_000_000) => rate,
                    _ => return Err(given.refuse(format!("is {text:?}, not a sample rate"))),
                },
                Err(_) => given.whole(1, 1_000_000)?,
            };
            about.rate_assumed = false;
        }
        about.name = meta.get("name")?.and_then(|v| v.text().ok().map(str::to_owned));
    }
    let list = at.need("layers")?;
    let (mut cells, mut dense) = (Vec::new(), Vec::new());
    let mut width = inputs;
    for layer in list.list()? {
        limits.layer(&layer)?;
        layer.only(&["type", "activation", "shape", "weights"])?;
        let kind = layer.need("type")?;
        let hidden = last_of(&layer.need("shape")?, Limits::HIDDEN)?;
        let activation = layer.get("activation")?;
        let activation_name = match &activation {
            Some(name) => name.text()?,
            None => "",
        };
        let from = Stored { layer: &layer, parts: layer.need("weights")?, inputs: width, hidden };
        match kind.text()? {
            name @ ("lstm" | "gru") => {
                from.are(3)?;
                if !dense.is_empty() {
                    return Err(layer.refuse("is recurrent behind a dense layer"));
                }
                if !matches!(activation_name, "" | "tanh") {
                    return Err(layer.refuse(format!(
                        "has the activation {activation_name:?}; tanh is known here"
                    )));
                }
                cells.push(from.cell(name == "gru", &mut limits)?);
            }
            "dense" => {
                from.are(2)?;
                let conv = from.dense(&mut limits)?;
                let act = dense_activation(&layer, activation_name)?;
                dense.push((conv, act));
            }
            other => {
                return Err(kind.refuse(format!("is {other:?}; lstm, gru and dense are known")));
            }
        }
        width = hidden;
    }
    if cells.is_empty() {
        return Err(list.refuse("has no recurrent layer"));
    }
    if width != 1 || dense.is_empty() {
        return Err(
            list.refuse(format!("ends in {width} channels; a dense layer to one must end it"))
        );
    }
    about.architecture = if cells.iter().any(|c| c.gru) { "GRU" } else { "LSTM" }.to_owned();
    about.rate = SampleRate(rate as u32);
    about.knobs = inputs - 1;
    about.weights = limits.weights();
    let net = Recurrent { cells, dense, skip, gains, prewarm: 0 };
    Ok(Amp { about, sizes: vec![Size::whole(Net::Recurrent(net))] })
}

/// What a dense layer makes of its sums.
fn dense_activation(layer: &At<'_>, name: &str) -> Result<Activation, Error> {
    Ok(match name {
        "" => Activation::Identity,
        "tanh" => Activation::Tanh,
        "relu" => Activation::Relu,
        "sigmoid" => Activation::Sigmoid,
        other => {
            return Err(layer.refuse(format!(
                "has the activation {other:?}; tanh, relu and sigmoid are known"
            )));
        }
    })
}

/// A layer's weights as they are in the file.
struct Stored<'s, 'a> {
    layer: &'s At<'a>,
    parts: At<'a>,
    inputs: usize,
    hidden: usize,
}

impl<'a> Stored<'_, 'a> {
    /// Refuses any other number of parts.
    fn are(&self, wanted: usize) -> Result<(), Error> {
        match self.parts.list()?.len() {
            there if there == wanted => Ok(()),
            there => Err(self.parts.refuse(format!("has {there} parts, not {wanted}"))),
        }
    }

    fn part(&self, n: usize) -> Result<At<'a>, Error> {
        let part = self.parts.list()?.into_iter().nth(n);
        part.ok_or_else(|| self.parts.refuse(format!("has no part {n}")))
    }

    /// An LSTM's or a GRU's.
    fn cell(&self, gru: bool, limits: &mut Limits) -> Result<Cell, Error> {
        let (inputs, hidden) = (self.inputs, self.hidden);
        let rows = if gru { 3 } else { 4 } * hidden;
        limits.take(rows * (inputs + hidden + 2), self.layer)?;
        let weights = self.part(0)?.matrix(inputs, rows)?;
        let recurrent = self.part(1)?.matrix(hidden, rows)?;
        let (bias, recurrent_bias) = if gru {
            let mut both = self.part(2)?.matrix(2, rows)?;
            let second = both.split_off(rows);
            (both, second)
        } else {
            (self.part(2)?.vector(rows)?, Vec::new())
        };
        let (state, cell) = (vec![0.0; hidden], vec![0.0; hidden]);
        Ok(Cell { gru, inputs, hidden, weights, recurrent, bias, recurrent_bias, state, cell })
    }

    fn dense(&self, limits: &mut Limits) -> Result<Conv, Error> {
        let (inputs, outputs) = (self.inputs, self.hidden);
        limits.take((inputs + 1) * outputs, self.layer)?;
        let weights = self.part(0)?.matrix(inputs, outputs)?;
        let bias = self.part(1)?.vector(outputs)?;
        Ok(Conv { inputs, outputs, taps: 1, dilation: 1, weights, bias })
    }
}

/// The last entry of `[null, null, n]`.
fn last_of(at: &At<'_>, most: usize) -> Result<usize, Error> {
    let last = at.list()?.pop().ok_or_else(|| at.refuse("is empty"))?;
    last.whole(1, most)
}

//! `.nam` files, 0.5.0 to 0.7.x.
//!
//! The reference is sdatkinson/NeuralAmpModelerCore. Where the trainer differs from it (FiLM behind
//! the 1x1 of a layer that does not blend), the reference is followed: it is what everyone hears.

use super::{
    About, Amp, AmpFormat, Error, Limits, Size,
    json::At,
    net::{Activation, Cell, Chain, Linear, Net, Recurrent},
};
use crate::fir::MAX_TAPS;
use quiet_types::SampleRate;
use wavenet::wavenet;
use weights::{Shape, Weights};

mod wavenet;
mod weights;

/// The formats that are read.
const KNOWN: &str = "0.5.0 to 0.7.x";

/// Whether the top of a file looks like a `.nam`.
pub(super) fn is(at: &At<'_>) -> Result<bool, Error> {
    Ok(at.get("architecture")?.is_some())
}

/// A whole file.
pub(super) fn parse(at: &At<'_>) -> Result<Amp, Error> {
    let mut limits = Limits::default();
    let (about, sizes) = model(at, &mut limits).map_err(|error| of_format(at, error))?;
    Ok(Amp { about: About { weights: limits.weights(), ..about }, sizes })
}

/// What is not known may belong to a newer format: the sentence says which one the file is of.
fn of_format(at: &At<'_>, error: Error) -> Error {
    let version = at.get("version").ok().flatten();
    let text = version.as_ref().and_then(|version| version.text().ok());
    match (error, text) {
        (Error::Key { path, why }, Some(version)) if path != "version" => {
            let version = quiet_types::printable(version, 20);
            let why = format!("{why} (the file is of format {version}; {KNOWN} are known)");
            Error::Key { path, why }
        }
        (error, _) => error,
    }
}

fn model(at: &At<'_>, limits: &mut Limits) -> Result<(About, Vec<Size>), Error> {
    version(&at.need("version")?)?;
    let architecture = at.need("architecture")?;
    let config = at.need("config")?;
    let given = match at.get("sample_rate")? {
        // The reference's word for a rate that nobody knows.
        Some(rate) if rate.number()? == -1.0 => None,
        Some(rate) => Some(rate.whole(1, 1_000_000)?),
        None => None,
    };
    let rate = given.unwrap_or(48_000);
    let name = architecture.text()?;
    let mut about = About {
        format: AmpFormat::Nam,
        architecture: name.to_owned(),
        rate: SampleRate(rate as u32),
        rate_assumed: given.is_none(),
        ..About::default()
    };
    if let Some(meta) = at.get("metadata")? {
        let number = |key| meta.get(key)?.map(|v| v.number()).transpose();
        about.loudness = number("loudness")?;
        about.input_dbu = number("input_level_dbu")?;
        about.output_dbu = number("output_level_dbu")?;
        let text =
            |key| Ok::<_, Error>(meta.get(key)?.and_then(|v| v.text().ok().map(str::to_owned)));
        about.name = text("name")?;
    }
    let weights = |limits: &mut Limits| {
        let row = at.need("weights")?;
        let all = row.weights()?;
        limits.take(all.len(), &row)?;
        Ok::<_, Error>(Weights::new(row.path, all))
    };
    let sizes = match name {
        "Linear" => vec![Size::whole(linear(&config, weights(limits)?, limits)?)],
        "ConvNet" => vec![Size::whole(convnet(&config, weights(limits)?, limits)?)],
        "LSTM" => {
            // Half a second, where the file tells how much that is; something in any case.
            let prewarm = given.map_or(1, |rate| (rate / 2).max(1));
            vec![Size::whole(lstm(&config, weights(limits)?, limits, prewarm)?)]
        }
        "WaveNet" => wavenet(&config, weights(limits)?, limits, &mut about)?,
        "SlimmableContainer" => return container(&config, about, limits),
        "Sequential" => {
            let own = at.get("weights")?;
            if let Some(own) = own.filter(|own| own.row().map_or(true, |row| !row.is_empty())) {
                return Err(own.refuse(
                    "must be empty: each amp of a Sequential has its own weights (the trainer's first \
                     exports had not; export the amp again)",
                ));
            }
            return sequential(&config, about, limits);
        }
        other => {
            return Err(architecture.refuse(format!(
                "is {other:?}; Linear, ConvNet, LSTM, WaveNet, SlimmableContainer and Sequential are \
                 known"
            )));
        }
    };
    Ok((about, sizes))
}

fn version(at: &At<'_>) -> Result<(), Error> {
    let text = at.text()?;
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    match parts.as_deref() {
        Some([0, 5..=7, _]) => Ok(()),
        _ => Err(at.refuse(format!("is {text:?}; {KNOWN} are known"))),
    }
}

/// Channels of a net's input and output.
fn channels(config: &At<'_>) -> Result<(usize, usize), Error> {
    let of = |key| config.get(key)?.map_or(Ok(1), |count| count.whole(1, Limits::CHANNELS));
    Ok((of("in_channels")?, of("out_channels")?))
}

fn linear(config: &At<'_>, mut from: Weights, limits: &mut Limits) -> Result<Net, Error> {
    config.only(&["receptive_field", "bias", "implementation", "in_channels", "out_channels"])?;
    let (inputs, outputs) = channels(config)?;
    let Some(paths) = Linear::paths(inputs, outputs) else {
        return Err(config.need("out_channels")?.refuse(format!(
            "is {outputs} for {inputs} inputs; as many are possible, or one, or several for one input"
        )));
    };
    if let Some(how) = config.get("implementation")? {
        // How it is computed, not what.
        let known =
            ["auto", "direct", "fft", "legacy", "old", "partitioned_fft", "partitioned-fft"];
        if !known.contains(&how.text()?.to_ascii_lowercase().as_str()) {
            return Err(how.refuse(format!("is {:?}; auto, direct and fft are known", how.text()?)));
        }
    }
    let field = config.need("receptive_field")?;
    let count = field.whole(1, MAX_TAPS)?;
    let bias = config.need("bias")?.truth()?;
    limits.layer(&field)?;
    // History and spectra.
    limits.hold(8 * count * inputs.max(outputs), &field)?;
    let mut taps = Vec::new();
    for n in 0..paths {
        let what = if paths == 1 {
            "the impulse response".to_owned()
        } else {
            format!("impulse response {n}")
        };
        taps.push(from.take(count, &what)?.to_vec());
    }
    // Channels that share their response share its bias.
    let bias = match (bias, inputs == outputs) {
        (false, _) => vec![0.0; outputs],
        (true, true) => vec![from.take(1, "the bias")?[0]; outputs],
        (true, false) => from.take(outputs, "the biases")?.to_vec(),
    };
    from.end()?;
    Ok(Net::Linear(Linear { inputs, outputs, taps, bias }))
}

fn convnet(config: &At<'_>, mut from: Weights, limits: &mut Limits) -> Result<Net, Error> {
    config.only(&[
        "channels",
        "dilations",
        "batchnorm",
        "activation",
        "groups",
        "in_channels",
        "out_channels",
    ])?;
    let (first, outputs) = channels(config)?;
    let channels = config.need("channels")?.whole(1, Limits::CHANNELS)?;
    let dilations = config.need("dilations")?;
    let steps = dilations.wholes(1, Limits::DILATION)?;
    if steps.is_empty() {
        return Err(dilations.refuse("is empty"));
    }
    let batchnorm = config.need("batchnorm")?.truth()?;
    let activation = activation(&config.need("activation")?, channels)?;
    let groups = match config.get("groups")? {
        Some(groups) => groups.whole(1, Limits::CHANNELS)?,
        None => 1,
    };
    let mut layers = Vec::new();
    for (n, dilation) in steps.into_iter().enumerate() {
        limits.layer(&dilations)?;
        let inputs = if n == 0 { first } else { channels };
        let shape = Shape { taps: 2, dilation, groups, ..Shape::one(inputs, channels, !batchnorm) };
        let what = format!("the convolution of block {n}");
        let mut conv = shape.read(&mut from, limits, config, &what)?;
        if batchnorm {
            let what = format!("the batch norm of block {n}");
            let norm = from.take(4 * channels + 1, &what)?;
            let eps = f64::from(norm[4 * channels]);
            for o in 0..channels {
                let of = |part: usize| f64::from(norm[part * channels + o]);
                let scale = of(2) / (eps + of(1)).sqrt();
                if !(scale as f32).is_finite() {
                    return Err(Error::key("weights", format!("{what}: a variance below zero")));
                }
                for row in conv.weights.chunks_exact_mut(channels) {
                    row[o] = (f64::from(row[o]) * scale) as f32;
                }
                conv.bias[o] = (of(3) - scale * of(0)) as f32;
            }
            if !conv.weights.iter().chain(&conv.bias).all(|w| w.is_finite()) {
                return Err(Error::key("weights", format!("{what}: beyond any 32-bit number")));
            }
        }
        layers.push((conv, activation.clone()));
    }
    let head = Shape::one(channels, outputs, true).read(&mut from, limits, config, "the head")?;
    from.end()?;
    layers.push((head, Activation::Identity));
    Ok(Net::Chain(Chain { layers }))
}

fn lstm(
    config: &At<'_>,
    mut from: Weights,
    limits: &mut Limits,
    prewarm: usize,
) -> Result<Net, Error> {
    config.only(&["input_size", "hidden_size", "num_layers", "in_channels", "out_channels"])?;
    let (first, outputs) = channels(config)?;
    let size = config.need("input_size")?;
    if size.whole(1, Limits::CHANNELS)? != first {
        return Err(size.refuse(format!("must be the {first} of in_channels")));
    }
    let hidden = config.need("hidden_size")?.whole(1, Limits::HIDDEN)?;
    let count = config.need("num_layers")?;
    let mut cells = Vec::new();
    for n in 0..count.whole(1, Limits::LAYERS)? {
        limits.layer(&count)?;
        let inputs = if n == 0 { first } else { hidden };
        let what = format!("layer {n}");
        let file = from.take(4 * hidden * (inputs + hidden), &what)?;
        let (mut weights, mut recurrent) =
            (vec![0.0; inputs * 4 * hidden], vec![0.0; hidden * 4 * hidden]);
        for (row, line) in file.chunks_exact(inputs + hidden).enumerate() {
            for (column, w) in line.iter().enumerate() {
                match column.checked_sub(inputs) {
                    None => weights[column * 4 * hidden + row] = *w,
                    Some(column) => recurrent[column * 4 * hidden + row] = *w,
                }
            }
        }
        let bias = from.take(4 * hidden, &what)?.to_vec();
        let state = from.take(hidden, &what)?.to_vec();
        let cell = from.take(hidden, &what)?.to_vec();
        cells.push(Cell {
            gru: false,
            inputs,
            hidden,
            weights,
            recurrent,
            bias,
            recurrent_bias: Vec::new(),
            state,
            cell,
        });
    }
    let head = Shape::one(hidden, outputs, true).read(&mut from, limits, config, "the head")?;
    from.end()?;
    let dense = vec![(head, Activation::Identity)];
    Ok(Net::Recurrent(Recurrent { cells, dense, skip: false, gains: (1.0, 1.0), prewarm }))
}

fn container(
    config: &At<'_>,
    mut about: About,
    limits: &mut Limits,
) -> Result<(About, Vec<Size>), Error> {
    config.only(&["submodels"])?;
    let list = config.need("submodels")?;
    let entries = list.list()?;
    let (mut sizes, mut last) = (Vec::new(), f64::NEG_INFINITY);
    for (n, entry) in entries.iter().enumerate() {
        limits.layer(entry)?;
        entry.only(&["max_value", "model"])?;
        let max = entry.need("max_value")?;
        let below = max.number()?;
        if below <= last {
            return Err(max.refuse(format!("is {below}, not above the {last} before it")));
        }
        last = below;
        let end = n + 1 == entries.len();
        if end && below < 1.0 {
            return Err(max.refuse(format!("is {below}; the last one must reach 1")));
        }
        let inner_at = entry.need("model")?;
        let (inner, mut full) = model(&inner_at, limits)?;
        about.agree(&inner, &inner_at)?;
        // A slimmable amp inside is played whole, as the reference does.
        let whole = full.pop().map(|size| size.net);
        let net = whole.ok_or_else(|| inner_at.refuse("is empty"))?;
        if (net.inputs(), net.outputs()) != (1, 1) {
            let (inputs, outputs) = (net.inputs(), net.outputs());
            return Err(inner_at.refuse(format!(
                "has {inputs} inputs and {outputs} outputs; the amps of a SlimmableContainer have one each"
            )));
        }
        let below = if end { f64::INFINITY } else { below };
        // The last is the amp itself; the others are it at a lower price.
        about.loudness = about.loudness.or(inner.loudness);
        about.input_dbu = about.input_dbu.or(inner.input_dbu);
        about.output_dbu = about.output_dbu.or(inner.output_dbu);
        about.name = about.name.or(inner.name);
        sizes.push(Size { below, net, loudness: inner.loudness });
    }
    if sizes.is_empty() {
        return Err(list.refuse("is empty"));
    }
    Ok((about, sizes))
}

fn sequential(
    config: &At<'_>,
    mut about: About,
    limits: &mut Limits,
) -> Result<(About, Vec<Size>), Error> {
    config.only(&["models"])?;
    let list = config.need("models")?;
    let (entries, mut nets) = (list.list()?, Vec::new());
    for (n, entry) in entries.iter().enumerate() {
        limits.layer(entry)?;
        let (inner, mut sizes) = model(entry, limits)?;
        about.agree(&inner, entry)?;
        // What has several sizes is played whole.
        let net = sizes.pop().map(|size| size.net).ok_or_else(|| entry.refuse("is empty"))?;
        if let Some(before) = nets.last().map(Net::outputs).filter(|n| *n != net.inputs()) {
            let inputs = net.inputs();
            return Err(entry
                .refuse(format!("has {inputs} inputs; the amp before it has {before} outputs")));
        }
        // The levels of the whole are those of its two ends.
        if n == 0 {
            about.input_dbu = about.input_dbu.or(inner.input_dbu);
        }
        if n + 1 == entries.len() {
            about.loudness = about.loudness.or(inner.loudness);
            about.output_dbu = about.output_dbu.or(inner.output_dbu);
        }
        nets.push(net);
    }
    if nets.is_empty() {
        return Err(list.refuse("is empty"));
    }
    Ok((about, vec![Size::whole(Net::Series(nets))]))
}

impl About {
    /// Takes over the rate of an amp inside, where only that one says it.
    fn agree(&mut self, inner: &About, at: &At<'_>) -> Result<(), Error> {
        if inner.rate_assumed {
            return Ok(());
        }
        if !self.rate_assumed && self.rate != inner.rate {
            return Err(
                at.refuse(format!("is of {} Hz inside an amp of {} Hz", inner.rate.0, self.rate.0))
            );
        }
        (self.rate, self.rate_assumed) = (inner.rate, false);
        Ok(())
    }
}

fn activation(at: &At<'_>, channels: usize) -> Result<Activation, Error> {
    let object = at.is_object();
    let name_at = if object { at.need("type")? } else { at.clone() };
    let name = name_at.text()?;
    let only = |keys: &[&str]| if object { at.only(keys) } else { Ok(()) };
    let or = |key: &str, default: f32| match object {
        true => at.get(key)?.map_or(Ok(default), |v| v.single()),
        false => Ok(default),
    };
    match name {
        "LeakyReLU" => {
            only(&["type", "negative_slope"])?;
            return Ok(Activation::LeakyRelu(or("negative_slope", 0.01)?));
        }
        "PReLU" => {
            only(&["type", "negative_slope", "negative_slopes"])?;
            let each = if object { at.get("negative_slopes")? } else { None };
            let Some(each) = each else {
                return Ok(Activation::LeakyRelu(or("negative_slope", 0.01)?));
            };
            if at.get("negative_slope")?.is_some() {
                return Err(each.refuse("stands beside negative_slope; which one?"));
            }
            let slopes = each.weights()?;
            return match slopes.len() {
                1 => Ok(Activation::LeakyRelu(slopes[0])),
                n if n == channels => Ok(Activation::PRelu(slopes)),
                n => Err(each.refuse(format!("has {n} slopes for {channels} channels"))),
            };
        }
        "LeakyHardtanh" | "LeakyHardTanh" => {
            only(&["type", "min_val", "max_val", "min_slope", "max_slope"])?;
            return Ok(Activation::LeakyHardTanh {
                least: or("min_val", -1.0)?,
                most: or("max_val", 1.0)?,
                below: or("min_slope", 0.01)?,
                above: or("max_slope", 0.01)?,
            });
        }
        _ => only(&["type"])?,
    }
    Ok(match name {
        "Tanh" => Activation::Tanh,
        "Fasttanh" => Activation::FastTanh,
        "Hardtanh" => Activation::HardTanh,
        "ReLU" => Activation::Relu,
        "Sigmoid" => Activation::Sigmoid,
        "SiLU" => Activation::Silu,
        "Hardswish" => Activation::HardSwish,
        "Softsign" => Activation::Softsign,
        other => return Err(name_at.refuse(format!("is {other:?}, not a known activation"))),
    })
}

//! What an amp is made of, once its file is understood: layers with their weights in the order that
//! the kernels read.

/// A causal convolution of planes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conv {
    pub inputs: usize,
    pub outputs: usize,
    pub taps: usize,
    pub dilation: usize,
    /// `[tap][input][output]`, the oldest tap first; zeros between groups.
    pub weights: Vec<f32>,
    /// One for each output.
    pub bias: Vec<f32>,
}

impl Conv {
    /// How many frames before the newest it reads.
    pub fn reach(&self) -> usize {
        (self.taps - 1) * self.dilation
    }
}

/// An activation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Activation {
    Identity,
    Tanh,
    /// A rational formula that some amps were trained with, told from tanh by its name in the file.
    FastTanh,
    HardTanh,
    Relu,
    LeakyRelu(f32),
    /// One slope for each channel.
    PRelu(Vec<f32>),
    Sigmoid,
    Silu,
    HardSwish,
    LeakyHardTanh {
        least: f32,
        most: f32,
        below: f32,
        above: f32,
    },
    Softsign,
}

/// What becomes of a layer's second half of channels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Gate {
    None,
    /// `act(a) * gate(b)`.
    Gated(Activation),
    /// `g * act(a) + (1 - g) * a` with `g = gate(b)`.
    Blended(Activation),
}

/// `x * scale(condition) + shift(condition)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Film {
    /// From the condition to the scales, then the shifts if there are any.
    pub conv: Conv,
    pub shift: bool,
}

/// The places of a layer's FiLMs, in the order of their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    ConvPre,
    ConvPost,
    MixinPre,
    MixinPost,
    ActivationPre,
    ActivationPost,
    OnePost,
    HeadOnePost,
}

/// One layer of an array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    pub conv: Conv,
    pub mixin: Conv,
    pub activation: Activation,
    pub gate: Gate,
    pub one: Option<Conv>,
    pub head_one: Option<Conv>,
    pub films: [Option<Film>; 8],
}

impl Layer {
    pub fn film(&self, place: Place) -> Option<&Film> {
        self.films[place as usize].as_ref()
    }
}

/// An array of layers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub rechannel: Conv,
    pub layers: Vec<Layer>,
    pub head: Conv,
}

/// A WaveNet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wave {
    pub arrays: Vec<Array>,
    /// The scale of the last array's head.
    pub scale: f32,
    /// Convolutions after the scale, each behind its activation.
    pub head: Vec<(Activation, Conv)>,
    /// Makes the condition from the input; none: the input itself.
    pub condition: Option<Box<Net>>,
}

/// A recurrent layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub gru: bool,
    pub inputs: usize,
    pub hidden: usize,
    /// `[input][gate][hidden]`; an LSTM's gates are i, f, g, o, a GRU's z, r, h.
    pub weights: Vec<f32>,
    /// `[hidden][gate][hidden]`.
    pub recurrent: Vec<f32>,
    /// `[gate][hidden]`.
    pub bias: Vec<f32>,
    /// A GRU's second bias, inside the reset gate's reach.
    pub recurrent_bias: Vec<f32>,
    /// Where it starts from.
    pub state: Vec<f32>,
    /// An LSTM's cell at the start.
    pub cell: Vec<f32>,
}

/// A recurrent net with dense layers behind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recurrent {
    pub cells: Vec<Cell>,
    /// Each a convolution of one tap, and the activation after it.
    pub dense: Vec<(Conv, Activation)>,
    /// The input is added to the output.
    pub skip: bool,
    /// Factors before and after everything.
    pub gains: (f32, f32),
    /// Frames of silence that bring it to rest, at the least.
    pub prewarm: usize,
}

/// Convolutions one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chain {
    pub layers: Vec<(Conv, Activation)>,
}

/// Impulse responses: as many outputs as inputs, each through the same one; or one input to each output, or each
/// input to one output, through one of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub inputs: usize,
    pub outputs: usize,
    /// Of each path; tap 0 multiplies the newest sample.
    pub taps: Vec<Vec<f32>>,
    /// Of each output.
    pub bias: Vec<f32>,
}

impl Linear {
    /// How many impulse responses there are between so many channels; none where there is no such way.
    pub fn paths(inputs: usize, outputs: usize) -> Option<usize> {
        match (inputs, outputs) {
            (a, b) if a == b => Some(1),
            (1, many) | (many, 1) => Some(many),
            _ => None,
        }
    }
}

/// Any of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Net {
    Chain(Chain),
    Linear(Linear),
    Recurrent(Recurrent),
    /// One behind the other; each has as many inputs as the one before it has outputs.
    Series(Vec<Net>),
    Wave(Wave),
}

impl Net {
    /// Channels of the input.
    pub fn inputs(&self) -> usize {
        match self {
            Net::Chain(chain) => chain.layers.first().map_or(1, |(conv, _)| conv.inputs),
            Net::Linear(linear) => linear.inputs,
            Net::Series(nets) => nets.first().map_or(1, Net::inputs),
            Net::Recurrent(net) => net.cells.first().map_or(1, |cell| cell.inputs),
            Net::Wave(wave) => wave.arrays.first().map_or(1, |array| array.rechannel.inputs),
        }
    }

    /// Channels of the output.
    pub fn outputs(&self) -> usize {
        match self {
            Net::Chain(chain) => chain.layers.last().map_or(1, |(conv, _)| conv.outputs),
            Net::Linear(linear) => linear.outputs,
            Net::Series(nets) => nets.last().map_or(1, Net::outputs),
            Net::Recurrent(net) => net.dense.last().map_or(1, |(conv, _)| conv.outputs),
            Net::Wave(wave) => match (wave.head.last(), wave.arrays.last()) {
                (Some((_, conv)), _) => conv.outputs,
                (None, Some(array)) => array.head.outputs,
                (None, None) => 1,
            },
        }
    }

    /// Over how many frames an input sample is heard; none if it never ends.
    pub fn receptive(&self) -> Option<usize> {
        match self {
            Net::Chain(chain) => {
                Some(1 + chain.layers.iter().map(|(conv, _)| conv.reach()).sum::<usize>())
            }
            Net::Linear(linear) => linear.taps.iter().map(Vec::len).max(),
            Net::Recurrent(_) => None,
            Net::Series(nets) => {
                nets.iter().try_fold(1, |all, net| Some(all + net.receptive()? - 1))
            }
            Net::Wave(wave) => {
                let before = match &wave.condition {
                    Some(net) => net.receptive()?,
                    None => 1,
                };
                Some(before + wave.reach())
            }
        }
    }

    /// Multiplications and additions for each frame.
    pub fn flops(&self) -> u64 {
        let macs = |conv: &Conv| 2 * conv.weights.len() as u64;
        match self {
            Net::Chain(chain) => chain.layers.iter().map(|(c, _)| macs(c) + c.outputs as u64).sum(),
            // As if summed tap by tap, which it is not.
            Net::Linear(linear) => {
                let each = linear.taps.first().map_or(0, Vec::len);
                (2 * each * linear.inputs.max(linear.outputs)) as u64
            }
            Net::Series(nets) => nets.iter().map(Net::flops).sum(),
            Net::Recurrent(net) => {
                let cells = net.cells.iter().map(|cell| {
                    let all = cell.weights.len() + cell.recurrent.len();
                    2 * all as u64 + (cell.bias.len() + 4 * cell.hidden) as u64
                });
                cells.chain(net.dense.iter().map(|(c, _)| macs(c) + c.outputs as u64)).sum()
            }
            Net::Wave(wave) => {
                let layer = |layer: &Layer| {
                    let films = layer.films.iter().flatten().map(|film| macs(&film.conv));
                    let ones = [&layer.one, &layer.head_one].into_iter().flatten();
                    let more: u64 = ones.map(|c| macs(c) + c.outputs as u64).chain(films).sum();
                    // Biases, the head's sum, the residual.
                    let adds = 2 * layer.conv.outputs + layer.conv.inputs;
                    macs(&layer.conv) + macs(&layer.mixin) + more + adds as u64
                };
                let array = |array: &Array| {
                    let ends = macs(&array.rechannel) + macs(&array.head);
                    ends + array.layers.iter().map(layer).sum::<u64>()
                };
                let head: u64 = wave.head.iter().map(|(_, conv)| macs(conv)).sum();
                let given = wave.condition.as_ref().map_or(0, |net| net.flops());
                given + head + wave.arrays.iter().map(array).sum::<u64>()
            }
        }
    }

    /// Frames of silence that bring it to rest, at the least.
    pub fn prewarm(&self) -> usize {
        match self {
            Net::Chain(_) => self.receptive().unwrap_or(0),
            // Silence is what it starts from.
            Net::Linear(_) => 0,
            Net::Recurrent(net) => net.prewarm,
            Net::Series(nets) => {
                let reach = |net: &Net| net.receptive().unwrap_or(0).max(net.prewarm());
                nets.iter().map(reach).sum()
            }
            Net::Wave(wave) => {
                let inner = wave.condition.as_ref().map_or(1, |net| net.prewarm());
                inner + wave.reach()
            }
        }
    }
}

impl Wave {
    /// How many frames before the newest it reads.
    pub fn reach(&self) -> usize {
        let arrays = self.arrays.iter().flat_map(|array| {
            array.layers.iter().map(|layer| layer.conv.reach()).chain([array.head.reach()])
        });
        arrays.chain(self.head.iter().map(|(_, conv)| conv.reach())).sum()
    }
}

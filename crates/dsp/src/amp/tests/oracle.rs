//! The formats' nets in f64, written from their description and nothing else: whole signals at once,
//! weights taken in the file's order. It makes the weights up as it goes, so that a random
//! configuration needs no second bookkeeping; what it took is the file's `weights`.

use serde_json::{Value, json};

/// Rows of channels.
pub(super) type Rows = Vec<Vec<f64>>;

/// Numbers by chance, always the same for a seed: the nets in `fixtures/amps` are known by theirs, so no library draws them.
pub(super) struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// -1 to 1, exact as f32.
    pub fn unit(&mut self) -> f64 {
        f64::from(((self.next() >> 40) as f32) / 8_388_608.0 - 1.0)
    }
}

/// Where weights come from, and all that were taken.
pub(super) struct Source {
    pub chance: Chance,
    pub taken: Vec<f64>,
}

impl Source {
    pub fn new(seed: u64) -> Source {
        Source { chance: Chance(seed), taken: Vec::new() }
    }

    pub fn take(&mut self, n: usize, scale: f64) -> Vec<f64> {
        let all: Vec<f64> =
            (0..n).map(|_| f64::from((self.chance.unit() * scale) as f32)).collect();
        self.taken.extend(&all);
        all
    }
}

struct Conv {
    w: Vec<f64>,
    b: Vec<f64>,
    inputs: usize,
    outputs: usize,
    k: usize,
    d: usize,
    groups: usize,
}

impl Conv {
    fn read(
        s: &mut Source,
        [inputs, outputs, k, d, groups]: [usize; 5],
        bias: bool,
        scale: f64,
    ) -> Conv {
        let n = inputs / groups * outputs * k;
        let w = s.take(n, scale / ((inputs / groups * k) as f64).sqrt());
        let b = if bias { s.take(outputs, 0.2) } else { vec![0.0; outputs] };
        Conv { w, b, inputs, outputs, k, d, groups }
    }

    /// Its first inputs and outputs alone.
    fn slim(self, inputs: usize, outputs: usize) -> Conv {
        if (inputs, outputs) == (self.inputs, self.outputs) {
            return self;
        }
        assert_eq!(self.groups, 1);
        let at = |o: usize, i: usize| &self.w[(o * self.inputs + i) * self.k..][..self.k];
        let w =
            (0..outputs).flat_map(|o| (0..inputs).flat_map(move |i| at(o, i))).copied().collect();
        Conv { w, b: self.b[..outputs].to_vec(), inputs, outputs, ..self }
    }

    fn apply(&self, x: &Rows) -> Rows {
        assert_eq!(x.len(), self.inputs);
        let (ing, outg) = (self.inputs / self.groups, self.outputs / self.groups);
        let frames = x[0].len();
        (0..self.outputs)
            .map(|o| {
                let group = o / outg;
                (0..frames)
                    .map(|t| {
                        let mut y = self.b[o];
                        for i in 0..ing {
                            for k in 0..self.k {
                                let back = (self.k - 1 - k) * self.d;
                                if back <= t {
                                    y += self.w[(o * ing + i) * self.k + k]
                                        * x[group * ing + i][t - back];
                                }
                            }
                        }
                        y
                    })
                    .collect()
            })
            .collect()
    }
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn act(a: &Value, channel: usize, x: f64) -> f64 {
    let name = a.as_str().or(a["type"].as_str()).unwrap();
    // Parameters are 32-bit numbers in the engines.
    let number = |key: &str, or: f64| f64::from(a[key].as_f64().unwrap_or(or) as f32);
    match name {
        "Tanh" => x.tanh(),
        "Hardtanh" => x.clamp(-1.0, 1.0),
        "Fasttanh" => {
            let (ax, x2) = (x.abs(), x * x);
            x * (2.45550750702956
                + 2.45550750702956 * ax
                + (0.893229853513558 + 0.821226666969744 * ax) * x2)
                / (2.44506634652299
                    + (2.44506634652299 + x2) * (x + 0.814642734961073 * x * ax).abs())
        }
        "ReLU" => x.max(0.0),
        "LeakyReLU" => {
            if x > 0.0 {
                x
            } else {
                number("negative_slope", 0.01) * x
            }
        }
        "PReLU" => {
            let slope = match a["negative_slopes"].as_array() {
                Some(all) => f64::from(all[channel % all.len()].as_f64().unwrap() as f32),
                None => number("negative_slope", 0.01),
            };
            if x > 0.0 { x } else { slope * x }
        }
        "Sigmoid" => sigmoid(x),
        "SiLU" => x * sigmoid(x),
        "Hardswish" => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        "LeakyHardtanh" => {
            let (lo, hi) = (number("min_val", -1.0), number("max_val", 1.0));
            if x < lo {
                (x - lo) * number("min_slope", 0.01) + lo
            } else if x > hi {
                (x - hi) * number("max_slope", 0.01) + hi
            } else {
                x
            }
        }
        "Softsign" => x / (1.0 + x.abs()),
        other => panic!("{other}"),
    }
}

fn map(a: &Value, x: &Rows) -> Rows {
    x.iter().enumerate().map(|(c, row)| row.iter().map(|v| act(a, c, *v)).collect()).collect()
}

fn zip(a: &Rows, b: &Rows, f: impl Fn(f64, f64) -> f64) -> Rows {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()).collect()
}

fn random_act(c: &mut Chance, channels: usize) -> Value {
    match c.below(14) {
        0 => json!("Tanh"),
        1 => json!("Hardtanh"),
        2 => json!("ReLU"),
        3 => json!("LeakyReLU"),
        4 => json!({"type": "LeakyReLU", "negative_slope": 0.2}),
        5 => json!({"type": "PReLU", "negative_slope": 0.3}),
        6 => {
            let all: Vec<f64> = (0..channels).map(|n| 0.05 * n as f64 - 0.1).collect();
            json!({"type": "PReLU", "negative_slopes": all})
        }
        7 => json!("Sigmoid"),
        8 => json!({"type": "SiLU"}),
        9 => json!("Hardswish"),
        10 => json!({"type": "LeakyHardtanh", "min_val": -0.4, "max_val": 0.5, "min_slope": 0.1}),
        11 => json!("Softsign"),
        12 => json!("Fasttanh"),
        _ => json!({"type": "Tanh"}),
    }
}

const FILMS: [&str; 8] = [
    "conv_pre_film",
    "conv_post_film",
    "input_mixin_pre_film",
    "input_mixin_post_film",
    "activation_pre_film",
    "activation_post_film",
    "layer1x1_post_film",
    "head1x1_post_film",
];

fn divisor(c: &mut Chance, a: usize, b: usize) -> usize {
    let all: Vec<usize> =
        (1..=a.min(b)).filter(|g| a.is_multiple_of(*g) && b.is_multiple_of(*g)).collect();
    all[c.below(all.len())]
}

fn amp(architecture: &str, config: Value, s: Source) -> Value {
    json!({"version": "0.7.0", "architecture": architecture, "config": config,
           "weights": s.taken, "sample_rate": 48000, "metadata": null})
}

/// Says how many channels there are, where they are not one of each.
fn channels(config: &mut Value, inputs: usize, outputs: usize) {
    if (inputs, outputs) != (1, 1) {
        config["in_channels"] = json!(inputs);
        config["out_channels"] = json!(outputs);
    }
}

/// A WaveNet by chance, with everything that the format knows; the file and its output for `x`, which
/// begins with silence as long as the net reaches.
pub(super) fn wavenet(seed: u64, x: &Rows, outputs: usize, depth: usize) -> (Value, Rows) {
    any_wavenet(seed, x, outputs, depth, KeyKind::Any)
}

/// One whose arrays can be cut down to some of their channels, cut for the size `slim`.
pub(super) fn slimmable_wavenet(seed: u64, x: &Rows, slim: f64) -> (Value, Rows) {
    any_wavenet(seed, x, 1, 0, KeyKind::Slim(slim))
}

/// One of so many channels, with nothing that released amps do not have, and of taps near and far.
pub(super) fn usual_wavenet(seed: u64, x: &Rows, channels: usize) -> (Value, Rows) {
    any_wavenet(seed, x, 1, 0, KeyKind::Usual(channels))
}

#[derive(Clone, Copy, PartialEq)]
enum KeyKind {
    Any,
    Usual(usize),
    Slim(f64),
}

/// Some numbers of channels up to all, and the one for a size; only all where arrays keep theirs.
fn allowed(c: &mut Chance, channels: usize, slim: Option<f64>) -> (Vec<usize>, usize) {
    let Some(slim) = slim else { return (Vec::new(), channels) };
    let mut all: Vec<usize> = (1..channels).filter(|_| c.flip()).collect();
    all.push(channels);
    let kept = all[((slim * all.len() as f64) as usize).min(all.len() - 1)];
    (all, kept)
}

#[allow(
    clippy::too_many_lines,
    reason = "one draw after the other: the seeds of the fixtures hold their order"
)]
fn any_wavenet(seed: u64, x: &Rows, outputs: usize, depth: usize, kind: KeyKind) -> (Value, Rows) {
    let usual = if let KeyKind::Usual(channels) = kind { Some(channels) } else { None };
    let slim = if let KeyKind::Slim(size) = kind { Some(size) } else { None };
    let mut s = Source::new(seed);
    let mut choose = Chance(seed ^ 0x5555);
    let c = &mut choose;
    let plain = usual.is_some() || c.below(4) == 0;
    let (given, condition) = if depth > 0 && c.below(3) == 0 {
        let width = 1 + c.below(3);
        let (file, out) = match c.below(4) {
            0 => convnet(c.next(), x, 1),
            1 => linear(c.next(), x),
            _ => wavenet(c.next(), x, width, 0),
        };
        (out, Some(file))
    } else {
        (x.clone(), None)
    };
    let cond = given.len();
    let count = 1 + c.below(2);
    // The heads' widths fit together: a first array's head is the second's channels and sum.
    let second = if usual.is_some() { [1, 2, 3, 4, 6, 8, 12][c.below(7)] } else { 1 + c.below(5) };
    let (second_allowed, second_kept) = allowed(c, second, slim);
    let mut arrays = Vec::new();
    let mut input_size = x.len();
    let (mut now, mut sum): (Rows, Option<Rows>) = (x.clone(), None);
    let post = kind == KeyKind::Any && c.below(3) == 0;
    let last_head = if post { 1 + c.below(3) } else { outputs };
    for n in 0..count {
        let last = n + 1 == count;
        let channels = if n == 1 { second } else { usual.unwrap_or(1 + c.below(17)) };
        let (allowed, keep) = match n {
            0 => allowed(c, channels, slim),
            _ => (second_allowed.clone(), second_kept),
        };
        let one = plain || c.below(5) > 0;
        // A head of its own width does not fit behind one that was cut.
        let head_one = !plain && c.flip() && (slim.is_none() || n == 0);
        let mut bottleneck = if plain || !one { channels } else { 1 + c.below(6) };
        let head_width = if n == 1 { second } else { 1 + c.below(5) };
        if n == 1 && !head_one {
            // The sum goes on in as many rows as the first head has.
            bottleneck = second;
        }
        let (head, head_keep) = if last { (last_head, last_head) } else { (second, second_kept) };
        let narrow = if one { (bottleneck * keep / channels).max(1) } else { keep };
        let (old_head, head_k, head_d) = match c.flip() || slim.is_some() {
            true => (true, 1, 1),
            false => (false, 1 + c.below(4), 1 + c.below(3)),
        };
        let head_bias = c.flip();
        let layers = if usual.is_some() { 3 + c.below(3) } else { 1 + c.below(3) };
        let most_taps = if usual.is_some() { 15 } else { 4 };
        let each_k: Vec<usize> = (0..layers).map(|_| 1 + c.below(most_taps)).collect();
        let same_k = c.flip();
        let ks: Vec<usize> = each_k.iter().map(|k| if same_k { each_k[0] } else { *k }).collect();
        let mut dilation = || match usual {
            Some(_) => [1, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17][c.below(11)],
            None => 1 + c.below(70),
        };
        let dilations: Vec<usize> = (0..layers).map(|_| dilation()).collect();
        let modes: Vec<&str> = (0..layers)
            .map(|_| if plain { "none" } else { ["none", "gated", "blended"][c.below(3)] })
            .collect();
        let gated = modes.contains(&"gated") || modes.contains(&"blended");
        let acts: Vec<Value> = (0..layers)
            .map(|_| match plain {
                true if usual.is_some() && c.flip() => json!("LeakyReLU"),
                true => json!("Tanh"),
                false => random_act(c, bottleneck),
            })
            .collect();
        let second_acts: Vec<Value> = (0..layers).map(|_| random_act(c, bottleneck)).collect();
        // Groups must divide the doubled width of gated layers and the single one of others.
        let groups = if plain || slim.is_some() { 1 } else { divisor(c, channels, bottleneck) };
        let mix_groups = if plain || slim.is_some() { 1 } else { divisor(c, cond, bottleneck) };
        let one_groups = if plain || slim.is_some() { 1 } else { divisor(c, bottleneck, channels) };
        let head_groups =
            if plain || slim.is_some() { 1 } else { divisor(c, bottleneck, head_width) };
        let films: Vec<Option<(bool, usize)>> = (0..8)
            .map(|place| {
                let possible = !plain && (place != 6 || one) && (place != 7 || head_one);
                (possible && c.below(3) == 0).then(|| (c.flip(), 1))
            })
            .collect();
        let mut array = json!({
            "input_size": input_size, "condition_size": cond, "channels": channels,
            "dilations": dilations, "activation": acts, "bottleneck": bottleneck,
            "groups_input": groups, "groups_input_mixin": mix_groups,
            "layer1x1": {"active": one, "groups": one_groups},
            "head1x1": {"active": head_one, "out_channels": head_width, "groups": head_groups},
        });
        if same_k {
            array["kernel_size"] = json!(ks[0]);
        } else {
            array["kernel_sizes"] = json!(ks);
        }
        if old_head {
            array["head_size"] = json!(head);
            array["head_bias"] = json!(head_bias);
        } else {
            array["head"] = json!({"out_channels": head, "kernel_size": head_k, "bias": head_bias,
                                   "head_dilation": head_d});
        }
        if gated {
            array["gating_mode"] = json!(modes);
            array["secondary_activation"] = json!(second_acts);
        } else if c.flip() {
            array["gated"] = json!(false);
        }
        for (key, film) in FILMS.iter().zip(&films) {
            array[*key] = match film {
                Some((shift, groups)) => json!({"active": true, "shift": shift, "groups": groups}),
                None => json!(false),
            };
        }
        if slim.is_some() {
            array["slimmable"] = json!({"method": "slice_channels_uniform",
                                        "kwargs": {"allowed_channels": allowed}});
        }
        arrays.push(array);

        let rechannel = Conv::read(&mut s, [input_size, channels, 1, 1, 1], false, 1.0);
        now = rechannel.slim(now.len(), keep).apply(&now);
        input_size = channels;
        let (into, into_keep) =
            if head_one { (head_width, head_width) } else { (bottleneck, narrow) };
        let mut total = sum.take().unwrap_or(vec![vec![0.0; x[0].len()]; into_keep]);
        for l in 0..layers {
            let double = if modes[l] == "none" { 1 } else { 2 };
            // What is cut keeps its first rows, be they of one half or of two: as the reference does.
            let (wide, wide_keep) = (double * bottleneck, double * narrow);
            let conv = Conv::read(&mut s, [channels, wide, ks[l], dilations[l], groups], true, 1.2)
                .slim(keep, wide_keep);
            let mixin = Conv::read(&mut s, [cond, wide, 1, 1, mix_groups], false, 0.7)
                .slim(cond, wide_keep);
            let layer_one = one.then(|| {
                Conv::read(&mut s, [bottleneck, channels, 1, 1, one_groups], true, 0.5)
                    .slim(narrow, keep)
            });
            let layer_head = head_one.then(|| {
                Conv::read(&mut s, [bottleneck, head_width, 1, 1, head_groups], true, 0.8)
                    .slim(narrow, head_width)
            });
            let widths = [channels, wide, cond, wide, wide, bottleneck, channels, head_width];
            let kept = [keep, wide_keep, cond, wide_keep, wide_keep, narrow, keep, head_width];
            let by: Vec<Option<(bool, Conv)>> = films
                .iter()
                .zip(widths.into_iter().zip(kept))
                .map(|(film, (width, keep))| {
                    film.map(|(shift, groups)| {
                        let both = if shift { 2 } else { 1 };
                        let conv =
                            Conv::read(&mut s, [cond, both * width, 1, 1, groups], true, 1.5);
                        (shift, conv.slim(cond, both * keep))
                    })
                })
                .collect();
            let film = |place: usize, x: Rows| match &by[place] {
                None => x,
                Some((shift, conv)) => {
                    let both = conv.apply(&given);
                    let width = x.len();
                    let y = zip(&x, &both[..width].to_vec(), |x, s| x * s);
                    if *shift { zip(&y, &both[width..].to_vec(), |y, s| y + s) } else { y }
                }
            };
            let z = film(1, conv.apply(&film(0, now.clone())));
            let m = film(3, mixin.apply(&film(2, given.clone())));
            let z = film(4, zip(&z, &m, |a, b| a + b));
            let p = z[..narrow].to_vec();
            let a = map(&acts[l], &p);
            let a = match modes[l] {
                "none" => a,
                mode => {
                    let g = map(&second_acts[l], &z[narrow..].to_vec());
                    let on = zip(&a, &g, |a, g| a * g);
                    if mode == "gated" {
                        on
                    } else {
                        zip(&on, &zip(&g, &p, |g, p| (1.0 - g) * p), |a, b| a + b)
                    }
                }
            };
            let a = film(5, a);
            let heard = match &layer_head {
                Some(conv) => film(7, conv.apply(&a)),
                None => a.clone(),
            };
            total = zip(&total, &heard, |a, b| a + b);
            if let Some(conv) = &layer_one {
                let y = conv.apply(&a);
                // The reference applies this one only behind blending.
                let y = if modes[l] == "blended" { film(6, y) } else { y };
                now = zip(&now, &y, |a, b| a + b);
            }
        }
        let shape = [into, head, head_k, head_d, 1];
        let head = Conv::read(&mut s, shape, head_bias, 1.0).slim(into_keep, head_keep);
        sum = Some(head.apply(&total));
    }
    let mut out = sum.unwrap();
    let mut config = json!({"layers": arrays, "head": null, "head_scale": 0.02});
    if x.len() > 1 {
        config["in_channels"] = json!(x.len());
    }
    let mut convs = Vec::new();
    if post {
        let (channels, kernels) = (1 + c.below(4), [1 + c.below(3), 1 + c.below(3)]);
        let a = json!(["Tanh", "ReLU", "Softsign"][c.below(3)]);
        config["head"] = json!({"channels": channels, "out_channels": outputs,
                                "kernel_sizes": kernels, "activation": a});
        convs.push((
            a.clone(),
            Conv::read(&mut s, [last_head, channels, kernels[0], 1, 1], true, 1.0),
        ));
        convs.push((a, Conv::read(&mut s, [channels, outputs, kernels[1], 1, 1], true, 1.0)));
    }
    let scale = s.take(1, 1.0)[0];
    for row in &mut out {
        for v in row {
            *v *= scale;
        }
    }
    for (a, conv) in convs {
        out = conv.apply(&map(&a, &out));
    }
    if let Some(file) = condition {
        config["condition_dsp"] = file;
    }
    (amp("WaveNet", config, s), out)
}

/// A ConvNet by chance.
pub(super) fn convnet(seed: u64, x: &Rows, outputs: usize) -> (Value, Rows) {
    let (mut s, mut c) = (Source::new(seed), Chance(seed ^ 0x77));
    let channels = 1 + c.below(20);
    let dilations: Vec<usize> = (0..1 + c.below(4)).map(|_| 1 + c.below(50)).collect();
    let (batchnorm, a) = (c.flip(), random_act(&mut c, channels));
    let mut now = x.clone();
    for d in &dilations {
        let conv = Conv::read(&mut s, [now.len(), channels, 2, *d, 1], !batchnorm, 1.2);
        now = conv.apply(&now);
        if batchnorm {
            let (mean, mut var) = (s.take(channels, 0.2), s.take(channels, 0.5));
            let from = s.taken.len() - channels;
            for (n, v) in var.iter_mut().enumerate() {
                *v = f64::from((v.abs() + 0.3) as f32);
                s.taken[from + n] = *v;
            }
            let (gamma, beta) = (s.take(channels, 1.0), s.take(channels, 0.2));
            let eps = f64::from(1e-5f32);
            s.taken.push(eps);
            for n in 0..channels {
                for v in &mut now[n] {
                    *v = (*v - mean[n]) / (var[n] + eps).sqrt() * gamma[n] + beta[n];
                }
            }
        }
        now = map(&a, &now);
    }
    let out = Conv::read(&mut s, [channels, outputs, 1, 1, 1], true, 1.0).apply(&now);
    let mut config = json!({"channels": channels, "dilations": dilations, "batchnorm": batchnorm,
                        "activation": a, "groups": 1});
    self::channels(&mut config, x.len(), outputs);
    (amp("ConvNet", config, s), out)
}

/// A Linear by chance, of up to 300 taps.
pub(super) fn linear(seed: u64, x: &Rows) -> (Value, Rows) {
    linear_of(seed, 1 + Chance(seed ^ 0x77).below(300), x, x.len())
}

/// A Linear by chance: as many outputs as inputs, one input to each output, or each input to one output.
pub(super) fn linear_of(seed: u64, taps: usize, x: &Rows, outputs: usize) -> (Value, Rows) {
    let (mut s, mut c) = (Source::new(seed), Chance(seed ^ 0x99));
    let bias = c.flip();
    let scale = 0.5 * (300.0 / taps.max(300) as f64).sqrt();
    let paths = x.len().max(outputs);
    let shared = x.len() == outputs;
    let w: Vec<Vec<f64>> =
        (0..if shared { 1 } else { paths }).map(|_| s.take(taps, scale)).collect();
    let b = if bias { s.take(if shared { 1 } else { outputs }, 0.2) } else { vec![0.0] };
    let mut y: Rows =
        (0..outputs).map(|o| vec![if b.len() == 1 { b[0] } else { b[o] }; x[0].len()]).collect();
    for path in 0..paths {
        let from = if x.len() == 1 { &x[0] } else { &x[path] };
        let w = if shared { &w[0] } else { &w[path] };
        let to = if outputs == 1 { &mut y[0] } else { &mut y[path] };
        for (t, to) in to.iter_mut().enumerate() {
            *to += (0..taps.min(t + 1)).map(|k| w[k] * from[t - k]).sum::<f64>();
        }
    }
    let mut config = json!({"receptive_field": taps, "bias": bias});
    channels(&mut config, x.len(), outputs);
    (amp("Linear", config, s), y)
}

/// One amp as the only size of a container.
pub(super) fn container(model: &Value) -> Value {
    json!({"version": "0.7.0", "architecture": "SlimmableContainer", "weights": [],
           "sample_rate": 48000, "config": {"submodels": [{"max_value": 1.0, "model": model}]}})
}

/// One amp behind the other.
pub(super) fn sequential(models: &[Value]) -> Value {
    json!({"version": "0.7.0", "architecture": "Sequential", "weights": [],
           "config": {"models": models}})
}

/// One step of an LSTM: `[4H x (in + H)]` row after row, biases, state.
fn lstm_step(w: &[f64], b: &[f64], x: &[f64], h: &mut [f64], c: &mut [f64]) {
    let (n, width) = (h.len(), x.len() + h.len());
    let all: Vec<f64> = x.iter().chain(h.iter()).copied().collect();
    let gate = |r: usize| b[r] + (0..width).map(|k| w[r * width + k] * all[k]).sum::<f64>();
    let gates: Vec<f64> = (0..4 * n).map(gate).collect();
    for k in 0..n {
        c[k] = sigmoid(gates[n + k]) * c[k] + sigmoid(gates[k]) * gates[2 * n + k].tanh();
        h[k] = sigmoid(gates[3 * n + k]) * c[k].tanh();
    }
}

/// An LSTM of `.nam` by chance; `rest` frames of silence come first.
pub(super) fn lstm(seed: u64, x: &Rows, rest: usize, outputs: usize) -> (Value, Rows) {
    let (mut s, mut c) = (Source::new(seed), Chance(seed ^ 0x33));
    let (hidden, count) = (1 + c.below(20), 1 + c.below(3));
    let mut layers = Vec::new();
    for n in 0..count {
        let inputs = if n == 0 { x.len() } else { hidden };
        let w = s.take(4 * hidden * (inputs + hidden), 1.5 / (hidden as f64).sqrt());
        let b = s.take(4 * hidden, 0.5);
        layers.push((w, b, s.take(hidden, 0.5), s.take(hidden, 0.5)));
    }
    let (head, bias) = (s.take(hidden * outputs, 1.0), s.take(outputs, 0.1));
    let mut out = vec![Vec::new(); outputs];
    for t in 0..rest + x[0].len() {
        let mut now: Vec<f64> =
            x.iter().map(|x| if t < rest { 0.0 } else { x[t - rest] }).collect();
        for (w, b, h, c) in &mut layers {
            lstm_step(w, b, &now, h, c);
            now = h.clone();
        }
        if t >= rest {
            for (o, out) in out.iter_mut().enumerate() {
                let row = &head[o * hidden..][..hidden];
                out.push(bias[o] + row.iter().zip(&now).map(|(a, b)| a * b).sum::<f64>());
            }
        }
    }
    let mut config = json!({"input_size": x.len(), "hidden_size": hidden, "num_layers": count});
    channels(&mut config, x.len(), outputs);
    (amp("LSTM", config, s), out)
}

fn rows(flat: &[f64], columns: usize) -> Vec<Vec<f64>> {
    flat.chunks(columns).map(<[f64]>::to_vec).collect()
}

/// A net of RTNeural by chance: LSTMs and GRUs, dense layers behind, with knobs at `knobs`.
pub(super) fn keras(seed: u64, x: &[f64], knobs: &[f64]) -> (Value, Vec<f64>) {
    let (mut s, mut c) = (Source::new(seed), Chance(seed ^ 0x44));
    let inputs = 1 + knobs.len();
    let (mut layers, mut file) = (Vec::new(), Vec::new());
    let mut width = inputs;
    for _ in 0..1 + c.below(2) {
        let (gru, hidden) = (c.flip(), 1 + c.below(18));
        let gates = if gru { 3 } else { 4 };
        let w = s.take(width * gates * hidden, 1.0);
        let u = s.take(hidden * gates * hidden, 1.2 / (hidden as f64).sqrt());
        let b = s.take(if gru { 2 } else { 1 } * gates * hidden, 0.3);
        let columns = gates * hidden;
        let bias = if gru { json!(rows(&b, columns)) } else { json!(b) };
        file.push(json!({"type": if gru { "gru" } else { "lstm" }, "activation": "",
                         "shape": [null, null, hidden],
                         "weights": [rows(&w, columns), rows(&u, columns), bias]}));
        layers.push((gru, w, u, b, vec![0.0; hidden], vec![0.0; hidden]));
        width = hidden;
    }
    let mut dense = Vec::new();
    let middle = c.flip();
    for n in if middle { vec![1 + c.below(6), 1] } else { vec![1] } {
        let (w, b) = (s.take(width * n, 1.0 / (width as f64).sqrt()), s.take(n, 0.1));
        let a = if n == 1 { "" } else { ["tanh", "relu", "sigmoid"][c.below(3)] };
        file.push(json!({"type": "dense", "activation": a, "shape": [null, null, n],
                         "weights": [rows(&w, n), b]}));
        dense.push((w, b, a));
        width = n;
    }
    let (skip, gains) = (c.below(2), [c.unit() * 6.0, c.unit() * 6.0]);
    let factor = |db: f64| f64::from(10f64.powf(db / 20.0) as f32);
    let mut out = Vec::new();
    for x in x {
        let x = x * factor(gains[0]);
        let mut now: Vec<f64> = [x].into_iter().chain(knobs.iter().copied()).collect();
        for (gru, w, u, b, h, cell) in &mut layers {
            let (n, gates) = (h.len(), if *gru { 3 } else { 4 });
            let columns = gates * n;
            let wx = |r: usize| {
                b[r] + now.iter().enumerate().map(|(i, x)| w[i * columns + r] * x).sum::<f64>()
            };
            let uh =
                |r: usize| h.iter().enumerate().map(|(i, h)| u[i * columns + r] * h).sum::<f64>();
            let (a, m): (Vec<f64>, Vec<f64>) = (0..columns).map(|r| (wx(r), uh(r))).unzip();
            for k in 0..n {
                if *gru {
                    let b1 = |g: usize| b[columns + g * n + k];
                    let z = sigmoid(a[k] + m[k] + b1(0));
                    let r = sigmoid(a[n + k] + m[n + k] + b1(1));
                    let new = (a[2 * n + k] + r * (m[2 * n + k] + b1(2))).tanh();
                    h[k] = (1.0 - z) * new + z * h[k];
                } else {
                    let sum = |g: usize| a[g * n + k] + m[g * n + k];
                    cell[k] = sigmoid(sum(1)) * cell[k] + sigmoid(sum(0)) * sum(2).tanh();
                    h[k] = sigmoid(sum(3)) * cell[k].tanh();
                }
            }
            now = h.clone();
        }
        for (w, b, a) in &dense {
            let n = b.len();
            now = (0..n)
                .map(|o| {
                    let y =
                        b[o] + now.iter().enumerate().map(|(i, x)| w[i * n + o] * x).sum::<f64>();
                    match *a {
                        "tanh" => y.tanh(),
                        "relu" => y.max(0.0),
                        "sigmoid" => sigmoid(y),
                        _ => y,
                    }
                })
                .collect();
        }
        out.push((now[0] + skip as f64 * x) * factor(gains[1]));
    }
    let file = json!({"in_shape": [null, null, inputs], "layers": file, "in_skip": skip,
                      "in_gain": gains[0], "out_gain": gains[1],
                      "metadata": {"samplerate": "48000"}});
    (file, out)
}

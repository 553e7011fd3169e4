//! WaveNets of a `.nam` file: A1 and A2, with all that their layers may hold, and slimmable ones.

use super::{
    super::{
        About, Error, Limits, Size,
        json::At,
        net::{Activation, Array, Conv, Film, Gate, Layer, Net, Place, Wave},
    },
    activation, channels, model,
    weights::{Shape, Weights},
};

const FILMS: [(&str, Place); 8] = [
    ("conv_pre_film", Place::ConvPre),
    ("conv_post_film", Place::ConvPost),
    ("input_mixin_pre_film", Place::MixinPre),
    ("input_mixin_post_film", Place::MixinPost),
    ("activation_pre_film", Place::ActivationPre),
    ("activation_post_film", Place::ActivationPost),
    ("layer1x1_post_film", Place::OnePost),
    ("head1x1_post_film", Place::HeadOnePost),
];

/// An array's configuration.
struct Plan<'a> {
    at: At<'a>,
    input: usize,
    condition: usize,
    channels: usize,
    bottleneck: usize,
    kernels: Vec<usize>,
    dilations: Vec<usize>,
    gates: Vec<bool>,
    one: Option<usize>,
    head_one: Option<(usize, usize)>,
    groups: usize,
    mixin_groups: usize,
    /// For each place: with shift, groups.
    films: [Option<(bool, usize)>; 8],
    head: usize,
    head_bias: bool,
    head_taps: usize,
    head_dilation: usize,
    allowed: Vec<usize>,
}

/// What an array's configuration may hold beside [`FILMS`].
const KEYS: [&str; 19] = [
    "input_size",
    "condition_size",
    "channels",
    "bottleneck",
    "kernel_size",
    "kernel_sizes",
    "dilations",
    "activation",
    "gated",
    "gating_mode",
    "secondary_activation",
    "head_size",
    "head_bias",
    "head",
    "head1x1",
    "layer1x1",
    "groups_input",
    "groups_input_mixin",
    "slimmable",
];

fn plan<'a>(at: &At<'a>, limits: &mut Limits) -> Result<Plan<'a>, Error> {
    let known: Vec<&str> = KEYS.into_iter().chain(FILMS.map(|(key, _)| key)).collect();
    at.only(&known)?;
    let size = |key| at.need(key)?.whole(1, Limits::CHANNELS);
    let or = |key, default| match at.get(key)? {
        Some(value) => value.whole(1, Limits::CHANNELS),
        None => Ok(default),
    };
    let channels = size("channels")?;
    let dilations_at = at.need("dilations")?;
    let dilations = dilations_at.wholes(1, Limits::DILATION)?;
    if dilations.is_empty() {
        return Err(dilations_at.refuse("is empty"));
    }
    for _ in &dilations {
        limits.layer(&dilations_at)?;
    }
    let kernels = kernels(at, dilations.len())?;
    let gates = gates(at, dilations.len())?;
    let one = match active(at, "layer1x1", &["active", "groups"])? {
        None => Some(1),
        Some((false, _)) => None,
        Some((true, one)) => Some(one.need("groups")?.whole(1, Limits::CHANNELS)?),
    };
    let head_one = match active(at, "head1x1", &["active", "out_channels", "groups"])? {
        None | Some((false, _)) => None,
        Some((true, one)) => Some((
            one.need("out_channels")?.whole(1, Limits::CHANNELS)?,
            one.need("groups")?.whole(1, Limits::CHANNELS)?,
        )),
    };
    let bottleneck = or("bottleneck", channels)?;
    if one.is_none() && bottleneck != channels {
        let at = at.need("bottleneck")?;
        return Err(at.refuse(format!(
            "is {bottleneck}, but without a layer1x1 it must be the {channels} of channels"
        )));
    }
    let films = films(at, one.is_some(), head_one.is_some())?;
    let (head, head_bias, head_taps, head_dilation) = match at.get("head")? {
        Some(head) => {
            head.only(&["out_channels", "kernel_size", "bias", "head_dilation"])?;
            let dilation = head.get("head_dilation")?;
            (
                head.need("out_channels")?.whole(1, Limits::CHANNELS)?,
                head.need("bias")?.truth()?,
                head.need("kernel_size")?.whole(1, Limits::TAPS)?,
                dilation.map_or(Ok(1), |v| v.whole(1, Limits::DILATION))?,
            )
        }
        None => (size("head_size")?, at.need("head_bias")?.truth()?, 1, 1),
    };
    let allowed = allowed(at, channels)?;
    Ok(Plan {
        at: at.clone(),
        input: size("input_size")?,
        condition: size("condition_size")?,
        channels,
        bottleneck,
        kernels,
        dilations,
        gates,
        one,
        head_one,
        groups: or("groups_input", 1)?,
        mixin_groups: or("groups_input_mixin", 1)?,
        films,
        head,
        head_bias,
        head_taps,
        head_dilation,
        allowed,
    })
}

/// The taps of each of `count` layers.
fn kernels(at: &At<'_>, count: usize) -> Result<Vec<usize>, Error> {
    match (at.get("kernel_size")?, at.get("kernel_sizes")?) {
        (Some(one), None) => Ok(vec![one.whole(1, Limits::TAPS)?; count]),
        (None, Some(each)) => {
            let all = each.wholes(1, Limits::TAPS)?;
            if all.len() != count {
                return Err(each.refuse(format!("has {} entries for {count} layers", all.len())));
            }
            Ok(all)
        }
        (Some(_), Some(each)) => Err(each.refuse("stands beside kernel_size; which one?")),
        (None, None) => Err(at.refuse("has neither kernel_size nor kernel_sizes")),
    }
}

/// Whether each of `count` layers has a gate.
fn gates(at: &At<'_>, count: usize) -> Result<Vec<bool>, Error> {
    let mode = |at: &At<'_>| match at.text()? {
        "none" => Ok(false),
        "gated" | "blended" => Ok(true),
        other => Err(at.refuse(format!("is {other:?}; none, gated and blended are known"))),
    };
    match (at.get("gating_mode")?, at.get("gated")?) {
        (Some(list), _) if list.is_list() => {
            let all: Vec<bool> = list.list()?.iter().map(mode).collect::<Result<_, _>>()?;
            if all.len() != count {
                return Err(list.refuse(format!("has {} entries for {count} layers", all.len())));
            }
            Ok(all)
        }
        (Some(one), _) => Ok(vec![mode(&one)?; count]),
        (None, Some(gated)) => Ok(vec![gated.truth()?; count]),
        (None, None) => Ok(vec![false; count]),
    }
}

/// What stands under `key`, which has these `keys`, and whether it is active.
fn active<'a>(at: &At<'a>, key: &str, keys: &[&str]) -> Result<Option<(bool, At<'a>)>, Error> {
    let Some(one) = at.get(key)? else { return Ok(None) };
    one.only(keys)?;
    Ok(Some((one.need("active")?.truth()?, one)))
}

/// The films, of a layer with a layer1x1 (`one`) and a head1x1 (`head_one`) or without.
fn films(at: &At<'_>, one: bool, head_one: bool) -> Result<[Option<(bool, usize)>; 8], Error> {
    let mut films = [None; 8];
    for (key, place) in FILMS {
        let Some(film) = at.get(key)? else { continue };
        if !film.is_object() {
            if film.truth()? {
                return Err(film.refuse("is true; an object or false is expected"));
            }
            continue;
        }
        film.only(&["active", "shift", "groups"])?;
        let truth = |key| film.get(key)?.map_or(Ok(true), |v| v.truth());
        let groups = film.get("groups")?.map_or(Ok(1), |v| v.whole(1, Limits::CHANNELS))?;
        if !truth("active")? {
            continue;
        }
        if place == Place::OnePost && !one {
            return Err(film.refuse("is active, but the layer has no layer1x1"));
        }
        if place == Place::HeadOnePost && !head_one {
            return Err(film.refuse("is active, but the layer has no head1x1"));
        }
        films[place as usize] = Some((truth("shift")?, groups));
    }
    Ok(films)
}

/// The widths to which it may be slimmed, ascending to its own; none where it may not.
fn allowed(at: &At<'_>, channels: usize) -> Result<Vec<usize>, Error> {
    let Some(slim) = at.get("slimmable")? else { return Ok(Vec::new()) };
    slim.only(&["method", "kwargs"])?;
    let method = slim.need("method")?;
    if method.text()? != "slice_channels_uniform" {
        return Err(
            method.refuse(format!("is {:?}; slice_channels_uniform is known", method.text()?))
        );
    }
    let mut allowed = Vec::new();
    if let Some(more) = slim.get("kwargs")? {
        more.only(&["allowed_channels"])?;
        if let Some(list) = more.get("allowed_channels")? {
            allowed = list.wholes(1, Limits::CHANNELS)?;
            if !allowed.is_sorted_by(|a, b| a < b) || allowed.last() != Some(&channels) {
                return Err(list.refuse(format!("must ascend to the {channels} of channels")));
            }
        }
    }
    if allowed.is_empty() {
        allowed = (1..=channels).collect();
    }
    Ok(allowed)
}

impl Plan<'_> {
    /// The activations of a layer with `bottleneck` channels left.
    fn activations(&self, n: usize, kept: usize) -> Result<(Activation, Gate), Error> {
        let pick = |at: At<'_>| -> Result<Activation, Error> {
            if !at.is_list() {
                return slim_activation(&at, self.bottleneck, kept);
            }
            let all = at.list()?;
            if all.len() != self.dilations.len() {
                return Err(at.refuse(format!(
                    "has {} entries for {} layers",
                    all.len(),
                    self.dilations.len()
                )));
            }
            slim_activation(&all[n], self.bottleneck, kept)
        };
        let first = pick(self.at.need("activation")?)?;
        if !self.gates[n] {
            return Ok((first, Gate::None));
        }
        // The old key `gated` knows no other second activation than the sigmoid.
        let mode = self.at.get("gating_mode")?;
        let second = match (self.at.get("secondary_activation")?, &mode) {
            (Some(second), Some(_)) => pick(second)?,
            _ => Activation::Sigmoid,
        };
        let blended = match mode {
            None => false,
            Some(mode) if mode.is_list() => mode.list()?[n].text()? == "blended",
            Some(mode) => mode.text()? == "blended",
        };
        Ok((first, if blended { Gate::Blended(second) } else { Gate::Gated(second) }))
    }

    /// The bottleneck that is left with the widths in `kept`, if there is a way to cut it so.
    fn narrow(&self, (channels, input, head): (usize, usize, usize)) -> Result<usize, Error> {
        let slim = channels != self.channels;
        let narrow = if !slim {
            self.bottleneck
        } else if self.one.is_none() {
            channels
        } else {
            (self.bottleneck * channels / self.channels).max(1)
        };
        if slim || input != self.input || head != self.head {
            let grouped = self.groups != 1
                || self.mixin_groups != 1
                || self.one.is_some_and(|g| g != 1)
                || self.head_one.is_some_and(|(_, g)| g != 1)
                || self.films.iter().flatten().any(|(_, g)| *g != 1);
            if grouped {
                return Err(self.at.refuse("is slimmable, which groups are not"));
            }
            if self.head_taps != 1 {
                return Err(self.at.refuse("is slimmable, which a head of several taps is not"));
            }
        }
        Ok(narrow)
    }

    /// The array with the widths in `kept` (its own, the one before, the one behind).
    fn read(
        &self,
        from: &mut Weights,
        limits: &mut Limits,
        kept: (usize, usize, usize),
        index: usize,
    ) -> Result<Array, Error> {
        let at = &self.at;
        let (channels, input, head) = kept;
        let narrow = self.narrow(kept)?;
        let what = |part: &str, layer: usize| format!("{part} of layer {layer} in array {index}");
        let rechannel = Shape::one(self.input, self.channels, false).keep(input, channels).read(
            from,
            limits,
            at,
            "the rechannel",
        )?;
        let mut layers = Vec::new();
        for (n, (taps, dilation)) in self.kernels.iter().zip(&self.dilations).enumerate() {
            let wide = if self.gates[n] { 2 } else { 1 };
            let (full, kept) = (wide * self.bottleneck, wide * narrow);
            let conv = Shape {
                taps: *taps,
                dilation: *dilation,
                groups: self.groups,
                ..Shape::one(self.channels, full, true).keep(channels, kept)
            }
            .read(from, limits, at, &what("the convolution", n))?;
            let mixin = Shape {
                groups: self.mixin_groups,
                ..Shape::one(self.condition, full, false).keep(self.condition, kept)
            }
            .read(from, limits, at, &what("the input mixin", n))?;
            let one = match self.one {
                None => None,
                Some(groups) => Some(
                    Shape {
                        groups,
                        ..Shape::one(self.bottleneck, self.channels, true).keep(narrow, channels)
                    }
                    .read(from, limits, at, &what("the 1x1", n))?,
                ),
            };
            let head_one = match self.head_one {
                None => None,
                Some((outputs, groups)) => Some(
                    Shape {
                        groups,
                        ..Shape::one(self.bottleneck, outputs, true).keep(narrow, outputs)
                    }
                    .read(from, limits, at, &what("the head's 1x1", n))?,
                ),
            };
            let mut films = [const { None }; 8];
            for (key, place) in FILMS {
                let Some((shift, groups)) = self.films[place as usize] else { continue };
                let (width, keep) = match place {
                    Place::ConvPre | Place::OnePost => (self.channels, channels),
                    Place::ConvPost | Place::MixinPost | Place::ActivationPre => (full, kept),
                    Place::MixinPre => (self.condition, self.condition),
                    Place::ActivationPost => (self.bottleneck, narrow),
                    Place::HeadOnePost => {
                        let outputs = self.head_one.map_or(0, |(outputs, _)| outputs);
                        (outputs, outputs)
                    }
                };
                let both = if shift { 2 } else { 1 };
                let conv = Shape {
                    groups,
                    ..Shape::one(self.condition, both * width, true)
                        .keep(self.condition, both * keep)
                }
                .read(from, limits, at, &what(key, n))?;
                films[place as usize] = Some(Film { conv, shift });
            }
            let (activation, gate) = self.activations(n, narrow)?;
            layers.push(Layer { conv, mixin, activation, gate, one, head_one, films });
        }
        let (into, kept) = match self.head_one {
            Some((outputs, _)) => (outputs, outputs),
            None => (self.bottleneck, narrow),
        };
        let head = Shape {
            taps: self.head_taps,
            dilation: self.head_dilation,
            ..Shape::one(into, self.head, self.head_bias).keep(kept, head)
        }
        .read(from, limits, at, &format!("the head of array {index}"))?;
        Ok(Array { rechannel, layers, head })
    }
}

/// A WaveNet, in every width that it can be cut to.
pub(super) fn wavenet(
    config: &At<'_>,
    from: Weights,
    limits: &mut Limits,
    about: &mut About,
) -> Result<Vec<Size>, Error> {
    config.only(&[
        "layers",
        "head",
        "head_scale",
        "in_channels",
        "out_channels",
        "condition_dsp",
    ])?;
    let (inputs, outputs) = channels(config)?;
    let condition = match config.get("condition_dsp")? {
        None => None,
        Some(inner) => {
            let (made, mut sizes) = model(&inner, limits)?;
            about.agree(&made, &inner)?;
            let net = sizes.pop().map(|size| size.net);
            let net = net.ok_or_else(|| inner.refuse("is empty"))?;
            if net.inputs() != inputs {
                let own = net.inputs();
                return Err(inner.refuse(format!("has {own} inputs, the amp around it {inputs}")));
            }
            Some(net)
        }
    };
    let list = config.need("layers")?;
    let plans: Vec<Plan<'_>> =
        list.list()?.iter().map(|at| plan(at, limits)).collect::<Result<_, _>>()?;
    let (Some(first), Some(last)) = (plans.first(), plans.last()) else {
        return Err(list.refuse("is empty"));
    };
    if first.input != inputs {
        let at = first.at.need("input_size")?;
        return Err(at.refuse(format!("must be the {inputs} of in_channels")));
    }
    fit(&plans, condition.as_ref().map_or(inputs, Net::outputs))?;
    let post = config.get("head")?;
    let heads = match &post {
        Some(post) => post.need("out_channels")?.whole(1, Limits::CHANNELS)?,
        None => last.head,
    };
    if let Some(given) = config.get("out_channels")?.filter(|_| outputs != heads) {
        return Err(given.refuse(format!("is {outputs}, but the last head has {heads}")));
    }
    let breaks = breakpoints(&plans);
    let slimmable = plans.iter().any(|one| !one.allowed.is_empty());
    if slimmable && let Some(post) = &post {
        return Err(post.refuse("stands behind slimmable arrays, which has no meaning"));
    }
    let mut sizes = Vec::new();
    let mut below = 0.0;
    for n in 0..=breaks.len() {
        let end = breaks.get(n).copied().unwrap_or(f64::INFINITY);
        let middle = if end.is_finite() { (below + end) / 2.0 } else { 1.0 };
        below = end;
        let widths: Vec<usize> = plans.iter().map(|one| one.width(middle)).collect();
        let mut from = from.afresh();
        let mut arrays = Vec::new();
        for (i, one) in plans.iter().enumerate() {
            let input = if i == 0 { one.input } else { widths[i - 1] };
            let head = widths.get(i + 1).copied().unwrap_or(one.head);
            arrays.push(one.read(&mut from, limits, (widths[i], input, head), i)?);
        }
        for pair in arrays.windows(2) {
            if let [before, after] = pair
                && before.head.outputs != after.head.inputs
            {
                return Err(list.refuse("is slimmable to widths whose heads do not fit together"));
            }
        }
        let head = match &post {
            Some(post) => behind(post, last.head, &mut from, limits)?,
            None => Vec::new(),
        };
        let scale = from.take(1, "the head scale")?.first().copied().unwrap_or(1.0);
        from.end()?;
        let condition = condition.clone().map(Box::new);
        sizes.push(Size {
            below: end,
            net: Net::Wave(Wave { arrays, scale, head, condition }),
            loudness: None,
        });
    }
    Ok(sizes)
}

/// Whether each array takes what the one before it gives, and what the condition has.
fn fit(plans: &[Plan<'_>], condition_size: usize) -> Result<(), Error> {
    for one in plans {
        if one.condition != condition_size {
            return Err(one.at.need("condition_size")?.refuse(format!(
                "is {}, but the condition has {condition_size} channels",
                one.condition
            )));
        }
    }
    for pair in plans.windows(2) {
        let [before, after] = pair else { continue };
        if after.channels != before.head || after.input != before.channels {
            return Err(after.at.refuse(format!(
                "takes {} inputs into {} channels; the array before it has {} channels and a head of {}",
                after.input, after.channels, before.channels, before.head
            )));
        }
        let into = after.head_one.map_or(after.bottleneck, |(outputs, _)| outputs);
        if into != before.head {
            return Err(after.at.refuse(format!(
                "adds {into} channels to the {} of the head before it",
                before.head
            )));
        }
    }
    Ok(())
}

/// The convolutions behind the arrays, whose heads have `inputs` channels.
fn behind(
    post: &At<'_>,
    mut inputs: usize,
    from: &mut Weights,
    limits: &mut Limits,
) -> Result<Vec<(Activation, Conv)>, Error> {
    let mut head = Vec::new();
    post.only(&["in_channels", "channels", "out_channels", "kernel_sizes", "activation"])?;
    if let Some(given) = post.get("in_channels")? {
        given.whole(inputs, inputs)?;
    }
    let kernels_at = post.need("kernel_sizes")?;
    let kernels = kernels_at.wholes(1, Limits::TAPS)?;
    let channels = post.need("channels")?.whole(1, Limits::CHANNELS)?;
    let outputs = post.need("out_channels")?.whole(1, Limits::CHANNELS)?;
    if kernels.is_empty() {
        return Err(kernels_at.refuse("is empty"));
    }
    for (n, taps) in kernels.iter().enumerate() {
        limits.layer(&kernels_at)?;
        let outputs = if n + 1 == kernels.len() { outputs } else { channels };
        let act = activation(&post.need("activation")?, inputs)?;
        let conv = Shape { taps: *taps, ..Shape::one(inputs, outputs, true) };
        let what = format!("convolution {n} of the head");
        head.push((act, conv.read(from, limits, post, &what)?));
        inputs = outputs;
    }
    Ok(head)
}

impl Plan<'_> {
    fn width(&self, slim: f64) -> usize {
        let at = (slim * self.allowed.len() as f64) as usize;
        self.allowed.get(at).or(self.allowed.last()).copied().unwrap_or(self.channels)
    }
}

fn breakpoints(plans: &[Plan<'_>]) -> Vec<f64> {
    let mut all: Vec<f64> = plans
        .iter()
        .flat_map(|one| {
            let len = one.allowed.len();
            (1..len).map(move |i| i as f64 / len as f64)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// An activation of `kept` channels of a layer that has `channels` in the file.
///
/// Each channel keeps its own slope of a PReLU. (The reference's debug build refuses such a cut; its release build
/// walks the whole list over the channels that are left. Nor is there anything to follow for a single slope in a gated
/// layer of several channels, where it reads behind its list.)
fn slim_activation(at: &At<'_>, channels: usize, kept: usize) -> Result<Activation, Error> {
    Ok(match activation(at, channels)? {
        Activation::PRelu(mut slopes) => {
            slopes.truncate(kept);
            Activation::PRelu(slopes)
        }
        other => other,
    })
}

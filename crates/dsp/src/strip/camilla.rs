//! CamillaDSP configurations as strips: filters, mixers and pipeline; what cannot be carried over
//! is listed, and nothing is dropped in silence.
//!
//! # Source
//! The documentation of CamillaDSP 4.1 (README, filterfunctions).

use quiet_types::FileError;
use serde_json::{Map, Value};
use std::fmt::{self, Write};

/// Nobody writes a longer configuration.
const LONGEST: usize = 4 << 20;
/// No list of losses is longer.
const MOST_LOSSES: usize = 500;

/// A configuration as a strip.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedStrip {
    /// The strip file.
    pub strip: String,
    /// What was not carried over, or not exactly, a sentence each; they stand in the file, too.
    pub lost: Vec<String>,
}

type Fields = Map<String, Value>;
/// A stage: its kind, and its keys with their values as TOML.
type Written = (&'static str, Vec<(&'static str, String)>);
/// What one filter becomes, or why it becomes nothing.
type Made = Result<Vec<Written>, String>;

/// Whether a text looks like such a configuration.
pub fn is_camilla(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.trim_end().starts_with(key));
    has("devices:") && (has("pipeline:") || has("filters:"))
}

/// Why a configuration becomes no strip.
#[derive(Debug)]
pub enum ImportError {
    /// It is larger than 4 MiB.
    TooLong,
    /// It is no YAML.
    NoYaml(Box<serde_saphyr::Error>),
    /// It is YAML, and not such a configuration or not one that can be played: why.
    Other(String),
    /// What it becomes is out of what a strip may hold.
    NoStrip(FileError),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::TooLong => f.write_str("the configuration is larger than 4 MiB"),
            ImportError::NoYaml(error) => {
                let text = error.to_string();
                write!(f, "this is not YAML: {}", text.lines().next().unwrap_or_default())
            }
            ImportError::Other(why) => f.write_str(why),
            ImportError::NoStrip(error) => write!(f, "it becomes no strip: {error}"),
        }
    }
}

impl std::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ImportError::NoYaml(error) => Some(error),
            ImportError::NoStrip(error) => Some(error),
            ImportError::TooLong | ImportError::Other(_) => None,
        }
    }
}

/// Reads a configuration.
///
/// # Errors
/// If it is no YAML, its pipeline names what it does not define, or a value is out of what a strip
/// may hold.
pub fn import(text: &str) -> Result<TranslatedStrip, ImportError> {
    if text.len() > LONGEST {
        return Err(ImportError::TooLong);
    }
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| ImportError::NoYaml(Box::new(error)))?;
    let Value::Object(root) = &value else {
        return Err(ImportError::Other(
            "this is no CamillaDSP configuration: it has no keys".into(),
        ));
    };
    let mut import = Import { root, out: String::new(), lost: Vec::new(), names: Vec::new() };
    import.run().map_err(ImportError::Other)?;
    let mut strip = String::new();
    for key in ["title", "description"] {
        for line in root.get(key).and_then(Value::as_str).unwrap_or_default().lines() {
            let _ = writeln!(strip, "# {}", quiet_types::printable(line, 200));
        }
    }
    strip.push_str("# Imported from a CamillaDSP configuration.\n");
    for lost in &import.lost {
        let _ = writeln!(strip, "# Not carried over: {lost}");
    }
    strip.push_str(&import.out);
    if let Err(error) = super::Description::parse(&strip, "the strip that it becomes") {
        return Err(ImportError::NoStrip(error));
    }
    Ok(TranslatedStrip { strip, lost: import.lost })
}

struct Import<'a> {
    root: &'a Fields,
    out: String,
    lost: Vec<String>,
    names: Vec<String>,
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn numbers(list: &[f64]) -> String {
    let words: Vec<String> = list.iter().map(|x| format!("{x:?}")).collect();
    format!("[{}]", words.join(", "))
}

fn number(fields: &Fields, key: &str) -> Result<f64, String> {
    let value = fields.get(key).and_then(Value::as_f64).filter(|value| value.is_finite());
    value.ok_or_else(|| format!("it has no number `{key}`"))
}

fn switch(fields: &Fields, key: &str) -> bool {
    fields.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(fields: &'a Fields, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn channels(value: Option<&Value>) -> Option<Vec<usize>> {
    let list = value?.as_array()?.iter().map(|one| one.as_u64().map(|n| n as usize));
    list.collect()
}

/// Factor of a gain in dB or linear.
fn factor(fields: &Fields) -> f64 {
    let gain = fields.get("gain").and_then(Value::as_f64);
    let size = match text(fields, "scale") {
        "linear" => gain.unwrap_or(0.0),
        _ => crate::stage::factor(gain.unwrap_or(0.0)),
    };
    let sign = if switch(fields, "inverted") { -1.0 } else { 1.0 };
    if switch(fields, "mute") { 0.0 } else { sign * size }
}

impl Import<'_> {
    fn lose(&mut self, what: impl AsRef<str>) {
        if self.lost.len() < MOST_LOSSES {
            self.lost.push(quiet_types::printable(what.as_ref(), 300));
        }
    }

    fn group(&self, key: &str) -> Option<&Fields> {
        self.root.get(key)?.as_object()
    }

    fn run(&mut self) -> Result<(), String> {
        let known =
            ["title", "description", "devices", "filters", "mixers", "processors", "pipeline"];
        for key in self.root.keys().filter(|key| !known.contains(&key.as_str())) {
            self.lost.push(format!("`{}`", quiet_types::printable(key, 60)));
        }
        let mut now = None;
        if let Some(devices) = self.group("devices").cloned() {
            now = devices.get("capture").and_then(|c| c.get("channels")).and_then(Value::as_u64);
            if let Some(channels @ 1..=64) = now {
                let _ = writeln!(self.out, "\n[strip]\nchannels = {channels}");
            }
            let rate = devices.get("samplerate").and_then(Value::as_u64);
            let rate = rate.map_or(String::new(), |rate| format!(" (it ran at {rate} Hz)"));
            self.lose(format!("`devices`: the host and its rate are chosen when playing{rate}"));
        }
        let empty = Vec::new();
        let pipeline = match self.root.get("pipeline") {
            Some(Value::Array(steps)) => steps,
            Some(Value::Null) | None => &empty,
            Some(_) => return Err("`pipeline` is no list".into()),
        };
        if pipeline.len() > 1000 {
            return Err("`pipeline` has more than 1000 steps".into());
        }
        let mut used: Vec<(&str, String)> = Vec::new();
        for (at, step) in pipeline.iter().enumerate() {
            let Some(step) = step.as_object() else {
                return Err(format!("step {} of `pipeline` is no step", at + 1));
            };
            let name = text(step, "name").to_owned();
            match text(step, "type") {
                "Filter" => {
                    let names = step.get("names").and_then(Value::as_array).unwrap_or(&empty);
                    let on = match step.get("channels") {
                        None | Some(Value::Null) => None,
                        value => Some(channels(value).ok_or_else(|| {
                            format!("`channels` of step {} of `pipeline` are no numbers", at + 1)
                        })?),
                    };
                    for name in names.iter().filter_map(Value::as_str) {
                        used.push(("filters", name.to_owned()));
                        self.filter(name, on.as_deref(), switch(step, "bypassed"))?;
                    }
                }
                "Mixer" => {
                    used.push(("mixers", name.clone()));
                    if switch(step, "bypassed") {
                        self.lose(format!("the mixer `{name}`, which is bypassed"));
                    } else {
                        self.mixer(&name)?;
                    }
                }
                "Processor" => {
                    used.push(("processors", name.clone()));
                    self.processor(&name, switch(step, "bypassed"))?;
                }
                other => return Err(format!("step {} of `pipeline` is of type `{other}`", at + 1)),
            }
        }
        for group in ["filters", "mixers", "processors"] {
            let names: Vec<String> =
                self.group(group).map(|g| g.keys().cloned().collect()).unwrap_or_default();
            for name in names {
                if !used.iter().any(|(kind, used)| *kind == group && *used == name) {
                    self.lose(format!("`{name}` of `{group}`, which the pipeline does not use"));
                }
            }
        }
        if now.is_none() && !pipeline.is_empty() {
            self.lose("the number of channels, which `devices` does not tell");
        }
        Ok(())
    }

    fn defined(&self, group: &str, name: &str) -> Result<Fields, String> {
        let found = self.group(group).and_then(|group| group.get(name)).and_then(Value::as_object);
        found.cloned().ok_or_else(|| {
            format!(
                "the pipeline names `{}`, which `{group}` does not define",
                quiet_types::printable(name, 60)
            )
        })
    }

    /// A name that nothing has yet.
    fn name(&mut self, wanted: &str) -> String {
        let wanted: String = wanted
            .chars()
            .map(|c| if c == '.' || c == '=' || c.is_control() { '-' } else { c })
            .take(50)
            .collect();
        let wanted = if wanted.trim().is_empty() { "stage".to_owned() } else { wanted };
        let taken = |name: &String| self.names.contains(name);
        let mut name = wanted.clone();
        let mut n = 1;
        while taken(&name) {
            n += 1;
            name = format!("{wanted}-{n}");
        }
        self.names.push(name.clone());
        name
    }

    fn stage(
        &mut self,
        name: &str,
        kind: &str,
        keys: &[(&'static str, String)],
        on: Option<&[usize]>,
        bypass: bool,
    ) {
        let name = self.name(name);
        let _ = writeln!(self.out, "\n[[stage]]\nname = {}\nkind = \"{kind}\"", quoted(&name));
        if let Some(on) = on {
            let _ = writeln!(self.out, "on = {on:?}");
        }
        if bypass {
            self.out.push_str("bypass = true\n");
        }
        for (key, value) in keys {
            let _ = writeln!(self.out, "{key} = {value}");
        }
    }

    fn filter(&mut self, name: &str, on: Option<&[usize]>, bypass: bool) -> Result<(), String> {
        let filter = self.defined("filters", name)?;
        let empty = Map::new();
        let p = filter.get("parameters").and_then(Value::as_object).unwrap_or(&empty);
        let kind = text(&filter, "type");
        if on.is_some_and(<[usize]>::is_empty) {
            self.lose(format!("`{name}` on no channel"));
            return Ok(());
        }
        match self.made(name, kind, p) {
            Ok(stages) => {
                for (kind, keys) in stages {
                    self.stage(name, kind, &keys, on, bypass);
                }
            }
            Err(why) => self.lose(format!("the filter `{name}` ({kind}): {why}")),
        }
        Ok(())
    }

    fn made(&mut self, name: &str, kind: &str, p: &Fields) -> Made {
        let plain = |x: f64| format!("{x:?}");
        match kind {
            "Gain" => {
                let factor = factor(p);
                let mut keys = Vec::new();
                if factor == 0.0 {
                    keys.push(("mute", "true".into()));
                } else {
                    keys.push(("gain", plain(crate::stage::decibels(factor))));
                    if factor < 0.0 {
                        keys.push(("invert", "true".into()));
                    }
                }
                Ok(vec![("gain", keys)])
            }
            "Delay" => {
                let delay = number(p, "delay")?;
                let (key, value) = match text(p, "unit") {
                    "us" => ("time", delay / 1000.0),
                    "mm" => ("time", delay / 343.0),
                    "samples" => ("frames", delay),
                    _ => ("time", delay),
                };
                let mut keys = vec![(key, plain(value))];
                if switch(p, "subsample") {
                    self.lose(format!(
                        "the allpass of the delay `{name}`: fractions are interpolated in place of it"
                    ));
                } else {
                    keys.push(("whole", "true".into()));
                }
                Ok(vec![("delay", keys)])
            }
            "Biquad" => biquad(p),
            "BiquadCombo" => combo(p),
            "Conv" => conv(p),
            "Limiter" => {
                if switch(p, "soft_clip") {
                    return Err("it clips softly, for which there is no stage".into());
                }
                let limit = p.get("clip_limit").and_then(Value::as_f64).unwrap_or(0.0);
                self.lose(format!(
                    "clipping by `{name}` of each channel alone: its channels are held together"
                ));
                Ok(vec![(
                    "limiter",
                    vec![
                        ("ceiling", plain(limit)),
                        ("release", "0.0".into()),
                        ("lookahead", "0.0".into()),
                    ],
                )])
            }
            "Dither" => self.dither(name, p),
            "Volume" | "Loudness" => Err("it follows a fader of CamillaDSP: use a `gain`, which \
                                          can be set while it sounds"
                .into()),
            "DiffEq" => diffeq(p),
            _ => Err("it is of a kind that is not known here".into()),
        }
    }

    fn dither(&mut self, name: &str, p: &Fields) -> Made {
        let kind = text(p, "type");
        let bits = number(p, "bits")?;
        let ours = match kind {
            "None" => "none",
            "Highpass" => "highpass",
            "Lipshitz441" => "lipshitz",
            "Flat" => {
                let amplitude = number(p, "amplitude")?;
                if amplitude != 2.0 {
                    self.lose(format!(
                        "the amplitude {amplitude} of the dither `{name}`: it is 2 here"
                    ));
                }
                "triangular"
            }
            _ => {
                self.lose(format!("the noise shape {kind} of `{name}`: it is triangular here"));
                "triangular"
            }
        };
        Ok(vec![("dither", vec![("bits", format!("{bits:?}")), ("type", quoted(ours))])])
    }

    fn mixer(&mut self, name: &str) -> Result<(), String> {
        let mixer = self.defined("mixers", name)?;
        let count = |key: &str| {
            let found = mixer.get("channels").and_then(|c| c.get(key)).and_then(Value::as_u64);
            found.filter(|n| (1..=64).contains(n)).map(|n| n as usize).ok_or_else(|| {
                format!("the mixer `{name}` does not tell its channels `{key}`, 1 to 64")
            })
        };
        let (inputs, outputs) = (count("in")?, count("out")?);
        let mut matrix = vec![vec![0.0; inputs]; outputs];
        let empty = Vec::new();
        let mapping = mixer.get("mapping").and_then(Value::as_array).unwrap_or(&empty);
        for map in mapping.iter().filter_map(Value::as_object) {
            if switch(map, "mute") {
                continue;
            }
            let dest = map.get("dest").and_then(Value::as_u64).unwrap_or(u64::MAX) as usize;
            let sources = map.get("sources").and_then(Value::as_array).unwrap_or(&empty);
            for source in sources.iter().filter_map(Value::as_object) {
                let channel = source.get("channel").and_then(Value::as_u64).unwrap_or(u64::MAX);
                let place = matrix.get_mut(dest).and_then(|row| row.get_mut(channel as usize));
                let place = place.ok_or_else(|| {
                    format!("the mixer `{name}` maps a channel that it does not have")
                })?;
                *place += factor(source);
            }
        }
        let rows: Vec<String> = matrix.iter().map(|row| numbers(row)).collect();
        self.stage(name, "mix", &[("matrix", format!("[{}]", rows.join(", ")))], None, false);
        Ok(())
    }

    fn processor(&mut self, name: &str, bypass: bool) -> Result<(), String> {
        let processor = self.defined("processors", name)?;
        let empty = Map::new();
        let p = processor.get("parameters").and_then(Value::as_object).unwrap_or(&empty);
        let kind = text(&processor, "type");
        let process = channels(p.get("process_channels")).filter(|list| !list.is_empty());
        let monitor = channels(p.get("monitor_channels")).filter(|list| !list.is_empty());
        let made = || -> Result<Written, String> {
            let ms = |key: &str| Ok::<_, String>(format!("{:?}", 1000.0 * number(p, key)?));
            let plain = |key: &str| Ok::<_, String>(format!("{:?}", number(p, key)?));
            match kind {
                "Compressor" => {
                    let mut keys = vec![
                        ("threshold", plain("threshold")?),
                        ("ratio", plain("factor")?),
                        ("attack", ms("attack")?),
                        ("release", ms("release")?),
                        ("knee", "0.0".to_owned()),
                    ];
                    if p.get("makeup_gain").is_some_and(Value::is_number) {
                        keys.push(("makeup", plain("makeup_gain")?));
                    }
                    Ok(("compressor", keys))
                }
                "NoiseGate" => Ok((
                    "gate",
                    vec![
                        ("threshold", plain("threshold")?),
                        ("range", format!("{:?}", -number(p, "attenuation")?)),
                        ("attack", ms("attack")?),
                        ("release", ms("release")?),
                        ("hysteresis", "0.0".to_owned()),
                        ("hold", "0.0".to_owned()),
                    ],
                )),
                _ => Err("there is no such stage".into()),
            }
        };
        match made() {
            Ok((stage, keys)) => {
                self.lose(format!(
                    "the detector of `{name}` exactly: ours follows the loudest of the channels \
                     that it works on"
                ));
                if monitor.is_some() && monitor != process {
                    self.lose(format!("`monitor_channels` of `{name}`"));
                }
                if switch(p, "soft_clip") || p.get("clip_limit").is_some_and(Value::is_number) {
                    self.lose(format!("the clipping at the end of `{name}`: add a `limiter`"));
                }
                self.stage(name, stage, &keys, process.as_deref(), bypass);
            }
            Err(why) => self.lose(format!("the processor `{name}` ({kind}): {why}")),
        }
        Ok(())
    }
}

fn biquad(p: &Fields) -> Made {
    let kind = text(p, "type");
    let ours = match kind {
        "Highpass" => "highpass",
        "Lowpass" => "lowpass",
        "Peaking" => "peak",
        "Highshelf" => "highshelf",
        "HighshelfFO" => "highshelf1",
        "Lowshelf" => "lowshelf",
        "LowshelfFO" => "lowshelf1",
        "HighpassFO" => "highpass1",
        "LowpassFO" => "lowpass1",
        "Allpass" => "allpass",
        "AllpassFO" => "allpass1",
        "Bandpass" => "bandpass",
        "Notch" => "notch",
        "GeneralNotch" => "general-notch",
        "LinkwitzTransform" => "linkwitz-transform",
        "Free" => "free",
        _ => return Err(format!("there is no biquad of type `{kind}`")),
    };
    let mut keys = vec![("type", quoted(ours))];
    let mut take = |key: &'static str, theirs: &str| -> Result<(), String> {
        keys.push((key, format!("{:?}", number(p, theirs)?)));
        Ok(())
    };
    match ours {
        "free" => {
            let list = ["b0", "b1", "b2", "a1", "a2"].map(|key| number(p, key));
            let list: Vec<f64> = list.into_iter().collect::<Result<_, _>>()?;
            keys.push(("coefficients", numbers(&list)));
            return Ok(vec![("biquad", keys)]);
        }
        "general-notch" => {
            take("frequency", "freq_z")?;
            take("target", "freq_p")?;
            take("q", "q_p")?;
            if switch(p, "normalize_at_dc") {
                keys.push(("normalise", "true".into()));
            }
            return Ok(vec![("biquad", keys)]);
        }
        "linkwitz-transform" => {
            take("frequency", "freq_act")?;
            take("q", "q_act")?;
            take("target", "freq_target")?;
            take("target-q", "q_target")?;
            return Ok(vec![("biquad", keys)]);
        }
        _ => take("frequency", "freq")?,
    }
    if matches!(ours, "peak" | "lowshelf" | "highshelf" | "lowshelf1" | "highshelf1") {
        take("gain", "gain")?;
    }
    if !ours.ends_with('1') {
        let width = ["q", "bandwidth", "slope"].into_iter().find(|key| p.contains_key(*key));
        match width {
            Some(key) => take(key, key)?,
            None => return Err("its width is not told".into()),
        }
    }
    Ok(vec![("biquad", keys)])
}

fn combo(p: &Fields) -> Made {
    let kind = text(p, "type");
    let one = |kind: &str, f: f64, q: f64, gain: f64| {
        let keys = vec![
            ("type", quoted(kind)),
            ("frequency", format!("{f:?}")),
            ("q", format!("{q:?}")),
            ("gain", format!("{gain:?}")),
        ];
        ("biquad", keys)
    };
    match kind {
        "LinkwitzRileyHighpass"
        | "LinkwitzRileyLowpass"
        | "ButterworthHighpass"
        | "ButterworthLowpass" => {
            let ours = if kind.starts_with("Linkwitz") { "linkwitz-riley" } else { "butterworth" };
            let order = number(p, "order")?;
            if order > 12.0 {
                return Err(format!("order {order} is above 12"));
            }
            let side = if kind.ends_with("Highpass") { "high" } else { "low" };
            let keys = vec![
                ("side", quoted(side)),
                ("frequency", format!("{:?}", number(p, "freq")?)),
                ("order", format!("{order:?}")),
            ];
            Ok(vec![(ours, keys)])
        }
        "Tilt" => {
            let gain = number(p, "gain")?;
            Ok(vec![
                one("lowshelf", 110.0, 0.35, -gain / 2.0),
                one("highshelf", 3500.0, 0.35, gain / 2.0),
            ])
        }
        "FivePointPeq" => {
            let mut stages = Vec::new();
            for (ours, at) in [
                ("lowshelf", "ls"),
                ("peak", "p1"),
                ("peak", "p2"),
                ("peak", "p3"),
                ("highshelf", "hs"),
            ] {
                let get = |letter: &str| number(p, &format!("{letter}{at}"));
                // A width of 0 leaves a point out.
                if get("q")?.abs() > 0.001 {
                    stages.push(one(ours, get("f")?, get("q")?, get("g")?));
                }
            }
            Ok(stages)
        }
        "GraphicEqualizer" => {
            let list = p.get("gains").and_then(Value::as_array);
            let gains: Option<Vec<f64>> = list.and_then(|l| l.iter().map(Value::as_f64).collect());
            let gains = gains.ok_or("it has no list `gains`")?;
            let get =
                |key: &str, default: f64| p.get(key).and_then(Value::as_f64).unwrap_or(default);
            let keys = vec![
                ("gains", numbers(&gains)),
                ("low", format!("{:?}", get("freq_min", 20.0))),
                ("high", format!("{:?}", get("freq_max", 20_000.0))),
            ];
            Ok(vec![("eq", keys)])
        }
        _ => Err(format!("there is no `{kind}`")),
    }
}

fn diffeq(p: &Fields) -> Made {
    let list = |key: &str| -> Option<Vec<f64>> {
        p.get(key)?.as_array()?.iter().map(Value::as_f64).collect()
    };
    let (mut a, mut b) = (list("a").unwrap_or_default(), list("b").unwrap_or_default());
    if a.len() > 3 || b.len() > 3 || a.first() == Some(&0.0) {
        return Err("it is of an order above 2: split it into biquads".into());
    }
    if a.is_empty() {
        a.push(1.0);
    }
    if b.is_empty() {
        b.push(1.0);
    }
    a.resize(3, 0.0);
    b.resize(3, 0.0);
    let list = [b[0] / a[0], b[1] / a[0], b[2] / a[0], a[1] / a[0], a[2] / a[0]];
    Ok(vec![("biquad", vec![("type", quoted("free")), ("coefficients", numbers(&list))])])
}

fn conv(p: &Fields) -> Made {
    let file = text(p, "filename");
    if file.contains("$samplerate$") || file.contains("$channels$") {
        return Err("its file name has tokens: name the file for one rate".into());
    }
    match text(p, "type") {
        "Wav" if !file.is_empty() => {
            let channel = p.get("channel").and_then(Value::as_f64).unwrap_or(0.0);
            let keys = vec![
                ("file", quoted(file)),
                ("format", quoted("wav")),
                ("channels", numbers(&[channel])),
            ];
            Ok(vec![("ir", keys)])
        }
        "Raw" if !file.is_empty() => {
            let cut = ["skip_bytes_lines", "read_bytes_lines"];
            if cut.iter().any(|key| p.get(*key).and_then(Value::as_f64).unwrap_or(0.0) > 0.0) {
                return Err("a part of its file is used: cut the file to it".into());
            }
            let format = match text(p, "format") {
                "" | "TEXT" => "text",
                "FLOAT32LE" | "F32_LE" => "f32",
                "FLOAT64LE" | "F64_LE" => "f64",
                other => {
                    return Err(format!("its file is raw {other}: make it WAV, float or text"));
                }
            };
            Ok(vec![("ir", vec![("file", quoted(file)), ("format", quoted(format))])])
        }
        "Values" => {
            let list = p.get("values").and_then(Value::as_array);
            let taps: Option<Vec<f64>> = list.and_then(|l| l.iter().map(Value::as_f64).collect());
            let taps = taps.filter(|taps| !taps.is_empty()).ok_or("it has no `values`")?;
            Ok(vec![("ir", vec![("taps", numbers(&taps))])])
        }
        "Dummy" => Err("it only takes time, for tests".into()),
        _ => Err("it names no coefficients".into()),
    }
}

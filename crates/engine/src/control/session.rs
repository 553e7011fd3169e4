//! Carries requests out.

use super::request::{Request, Swap, parse, typed};
use crate::{
    Engine, Fade, Loaded, LoopEvent, ReadyStrip, Result, Shelf, Ticks, WantedStrip, admit,
};
use quiet_dsp::{ProcessSpec, strip::Readout};
use quiet_linux::files::{self, Replace};
use quiet_rt::Cure;
use quiet_types::{
    Nanos,
    live::SoundWish,
    play::{Admission, Hits, Knob, PlayStatus, SoundReading, XrunAt},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// An engine with what may be done to it while it plays.
pub struct Session {
    engine: Engine,
    shelf: Box<dyn Shelf>,
    setting: ProcessSpec,
    clock: Ticks,
    name: String,
    params: Vec<Knob>,
    readings: Vec<Readout>,
    admission: Admission,
    bypass: bool,
    mute: bool,
    presets: Option<PathBuf>,
    quit: bool,
    /// Xruns with their times, newest last; the oldest are forgotten.
    xruns: std::collections::VecDeque<XrunAt>,
    /// Strips dropped here after they were spent.
    collected: u64,
    /// What happened that somebody at the terminal wants to know.
    news: Vec<String>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Most sentences that wait to be asked for.
const NEWS: usize = 16;

/// How many xruns are kept with their times.
const XRUNS: usize = 1000;
/// Most readings that are told.
const READINGS: usize = 64;
/// Most strips and presets that are named.
const NAMES: usize = 1000;

/// A preset as a file.
#[derive(Debug, Serialize, Deserialize)]
struct Preset {
    strip: Option<PathBuf>,
    #[serde(default)]
    params: BTreeMap<String, f32>,
    #[serde(default)]
    bypass: bool,
}

/// The largest preset that is read.
const LARGEST: u64 = 1 << 20;

type Answer = std::result::Result<Value, String>;

impl Session {
    /// Around an engine that plays `loaded` (whose strip it has taken).
    pub fn new(
        engine: Engine,
        shelf: Box<dyn Shelf>,
        (name, params, readings): (String, Vec<Knob>, Vec<Readout>),
        admission: Admission,
        (setting, clock): (ProcessSpec, Ticks),
        presets: Option<PathBuf>,
    ) -> Session {
        Session {
            engine,
            shelf,
            setting,
            clock,
            name,
            params,
            readings,
            admission,
            bypass: false,
            mute: false,
            presets,
            quit: false,
            xruns: std::collections::VecDeque::new(),
            collected: 0,
            news: Vec::new(),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Ends the engine; says what hit its thread.
    ///
    /// # Errors
    /// When what it made cannot be written.
    pub fn stop(&mut self) -> Result<Hits> {
        self.engine.stop()
    }

    /// The strip's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the strip fits, as measured before it sounded.
    pub fn admission(&self) -> Admission {
        self.admission
    }

    /// Whether it was asked to end.
    pub fn quits(&self) -> bool {
        self.quit
    }

    /// Xruns with their times, newest last.
    pub fn xruns(&self) -> impl DoubleEndedIterator<Item = &XrunAt> {
        self.xruns.iter()
    }

    /// How it goes.
    pub fn status(&self) -> PlayStatus {
        crate::status(&self.engine, self.setting.channels)
    }

    /// Hears what happened, and drops what is spent; to be called a few times a second.
    pub fn tidy(&mut self) {
        self.collected += self.engine.remote.collect() as u64;
        while let Some(event) = self.engine.remote.hear() {
            match event {
                LoopEvent::Xrun { at, xrun } => {
                    if self.xruns.len() == XRUNS {
                        self.xruns.pop_front();
                    }
                    self.xruns.push_back(XrunAt { at: Nanos(at), missed: xrun.missed });
                }
                LoopEvent::Cured { at, cure } if self.news.len() < NEWS => {
                    let what = match cure {
                        Cure::Reset => "its history was forgotten",
                        Cure::Bypass => {
                            "nothing cures it: the input is heard until another strip is swapped in"
                        }
                    };
                    self.news.push(format!(
                        "at {:.1} s the strip `{}` made samples that are no numbers, block after block: {what}",
                        Nanos(at).as_secs_f64(),
                        self.name
                    ));
                }
                _ => {}
            }
        }
    }

    /// What happened since this was last asked, a sentence each.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// One line of JSON in, one out.
    pub fn line(&mut self, line: &[u8]) -> String {
        let asked = parse(line);
        let answer = asked.request.and_then(|request| self.ask(&request));
        let mut object = match answer {
            Ok(Value::Object(mut object)) => {
                object.insert("ok".into(), true.into());
                object
            }
            Ok(_) => serde_json::Map::from_iter([("ok".into(), true.into())]),
            Err(error) => serde_json::Map::from_iter([
                ("ok".into(), false.into()),
                ("error".into(), error.into()),
            ]),
        };
        if let Some(id) = asked.id {
            object.insert("id".into(), id);
        }
        let mut text = Value::Object(object).to_string();
        text.push('\n');
        text
    }

    /// One line of words, as typed at the terminal: what to say.
    ///
    /// # Errors
    /// A sentence.
    pub fn words(&mut self, line: &str) -> Answer {
        self.ask(&typed(line)?)
    }

    /// Carries a request out.
    ///
    /// # Errors
    /// A sentence.
    pub fn ask(&mut self, request: &Request) -> Answer {
        self.tidy();
        match request {
            Request::Stats => self.stats(),
            Request::Wish(wish) => self.wish(wish),
            Request::Swap(swap) => self.swap(&wanted(swap)?),
            Request::Quit => {
                self.quit = true;
                Ok(Value::Null)
            }
        }
    }

    fn wish(&mut self, wish: &SoundWish) -> Answer {
        match wish {
            SoundWish::Params {} => Ok(json!({"strip": self.name, "params": self.params})),
            SoundWish::Set { param, value } => self.set(param, *value),
            SoundWish::Bypass { on } => {
                self.engine.remote.bypass(*on).ok_or_else(busy)?;
                self.bypass = *on;
                Ok(json!({"bypass": on}))
            }
            SoundWish::Mute { on } => {
                self.engine.remote.mute(*on).ok_or_else(busy)?;
                self.mute = *on;
                Ok(json!({"mute": on}))
            }
            SoundWish::Strips {} => {
                let (folder, strips) = self.strips()?;
                Ok(json!({"folder": folder, "strips": strips}))
            }
            SoundWish::Strip { name } => self.strip(name),
            SoundWish::Presets {} => Ok(json!({"presets": self.names()?})),
            SoundWish::Save { preset } => self.save(preset),
            SoundWish::Load { preset } => self.load(preset),
        }
    }

    fn stats(&self) -> Answer {
        let mut value = serde_json::to_value(self.status()).map_err(|e| e.to_string())?;
        if let Some(object) = value.as_object_mut() {
            object.insert("strip".into(), self.name.clone().into());
            object.insert("bypass".into(), self.bypass.into());
            object.insert("mute".into(), self.mute.into());
            object.insert("collected".into(), self.collected.into());
            object.insert("admitted".into(), json!(self.admission));
            let last: Vec<&XrunAt> = self.xruns.iter().rev().take(20).collect();
            object.insert("last_xruns".into(), json!(last));
            object.insert("readings".into(), json!(self.readings()));
        }
        Ok(value)
    }

    /// What the stages tell now.
    pub fn readings(&self) -> Vec<SoundReading> {
        let read = |one: &Readout| {
            let value = one.cell.get();
            SoundReading {
                name: one.name.clone(),
                unit: format!("{:?}", one.unit).to_lowercase(),
                value: value.is_finite().then_some(value),
            }
        };
        self.readings.iter().take(READINGS).map(read).collect()
    }

    /// The strips in the folder of the one that sounds.
    fn strips(&self) -> std::result::Result<(PathBuf, Vec<String>), String> {
        let path = self.shelf.path().ok_or("it plays a wire: there are no strips beside it")?;
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let folder = std::path::absolute(folder).map_err(|e| e.to_string())?;
        let strips = named(&folder, ".toml")?;
        Ok((folder, strips))
    }

    /// Another one of them.
    fn strip(&mut self, name: &str) -> Answer {
        let (folder, strips) = self.strips()?;
        let known = strips.iter().find(|one| *one == name).ok_or_else(|| {
            let shown = quiet_types::printable(name, 64);
            format!("there is no strip `{shown}` beside the one that sounds; ask for `strips` to see them")
        })?;
        self.swap(&WantedStrip::Strip(folder.join(format!("{known}.toml"))))
    }

    /// The place of a parameter, and its value if it is allowed.
    fn check(&self, name: &str, value: f32) -> std::result::Result<usize, String> {
        let shown = quiet_types::printable(name, 60);
        let at = self.params.iter().position(|param| param.name == name).ok_or_else(|| {
            if self.params.is_empty() {
                format!("the strip `{}` has no parameters", self.name)
            } else {
                format!("the strip has no parameter `{shown}`; ask for `params` to see them")
            }
        })?;
        let param = &self.params[at];
        if !value.is_finite() || value < param.low || value > param.high {
            return Err(format!(
                "{shown} cannot be {value}; it can be {} to {}",
                param.low, param.high
            ));
        }
        Ok(at)
    }

    fn set(&mut self, name: &str, value: f32) -> Answer {
        let at = self.check(name, value)?;
        self.engine.remote.set(at, value).ok_or_else(busy)?;
        self.params[at].value = value;
        Ok(json!({"param": name, "value": value}))
    }

    /// The strip's parameters as they are.
    pub fn params(&self) -> &[Knob] {
        &self.params
    }

    /// Whether the strip has a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.params.iter().any(|param| param.name == name)
    }

    /// Turns a parameter to `share` of its range, from 0 to 1.
    ///
    /// # Errors
    /// As for [`SoundWish::Set`].
    pub fn turn(&mut self, name: &str, share: f32) -> Answer {
        let param = self.params.iter().find(|param| param.name == name);
        let value = param.map_or(share, |p| p.low + (p.high - p.low) * share.clamp(0.0, 1.0));
        self.set(name, value)
    }

    fn swap(&mut self, wanted: &WantedStrip) -> Answer {
        let is_another = matches!(wanted, WantedStrip::Strip(_));
        let before = if is_another { Vec::new() } else { self.params.clone() };
        let loaded = self.shelf.load(wanted, self.setting).map_err(|e| e.to_string())?;
        let taken = self.take(loaded)?;
        // The same strip with another file: its knobs stay where they were turned to.
        for Knob { name, value, .. } in before {
            if self.params.iter().any(|param| param.name == name && param.value != value) {
                let _ = self.set(&name, value);
            }
        }
        Ok(taken)
    }

    fn take(&mut self, loaded: Loaded) -> Answer {
        let Loaded { strip, name, params, readings, notes, latency } = loaded;
        let (strip, admission) = admit(strip, self.setting, self.clock);
        if !admission.fits() {
            return Err(format!(
                "the strip `{name}` needs {} for its worst block, and a period lasts {}; the one \
                 that sounds stays: choose a longer period or a smaller strip",
                admission.worst, admission.period
            ));
        }
        let fade = if admission.fits_with(&self.admission) { Fade::Cross } else { Fade::Through };
        self.send(strip, fade)?;
        (self.name, self.params, self.admission) = (name, params, admission);
        self.readings = readings;
        Ok(json!({
            "strip": self.name,
            "worst": admission.worst,
            "share": (admission.share() * 1000.0).round() / 1000.0,
            "fade": match fade { Fade::Cross => "cross", Fade::Through => "through" },
            "latency": latency,
            "notes": notes,
        }))
    }

    fn send(&mut self, strip: ReadyStrip, fade: Fade) -> std::result::Result<(), String> {
        self.engine.remote.swap(strip, fade).map(|_| ()).map_err(|_| busy())
    }

    fn names(&self) -> std::result::Result<Vec<String>, String> {
        named(self.dir()?, ".json")
    }

    fn dir(&self) -> std::result::Result<&Path, String> {
        self.presets
            .as_deref()
            .ok_or_else(|| "there is no place for presets; start with --presets DIR".to_owned())
    }

    fn file(&self, name: &str) -> std::result::Result<PathBuf, String> {
        if !well_named(name) {
            return Err(
                "the name of a preset has up to 64 letters, digits, spaces, `-` and `_`".to_owned()
            );
        }
        Ok(self.dir()?.join(format!("{name}.json")))
    }

    fn save(&mut self, name: &str) -> Answer {
        let file = self.file(name)?;
        let cannot = |e: std::io::Error| format!("cannot write {}: {e}", file.display());
        let preset = Preset {
            strip: self.shelf.path(),
            params: self.params.iter().map(|p| (p.name.clone(), p.value)).collect(),
            bypass: self.bypass,
        };
        let text = serde_json::to_vec_pretty(&preset).map_err(|e| e.to_string())?;
        fs::create_dir_all(self.dir()?).map_err(cannot)?;
        files::write_whole(&file, &text, Replace::Always).map_err(cannot)?;
        Ok(json!({"preset": name}))
    }

    fn load(&mut self, name: &str) -> Answer {
        let file = self.file(name)?;
        let text = files::read(&file, LARGEST).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("there is no preset `{name}`; ask for `presets` to see them")
            }
            _ => format!("cannot read {}: {e}", file.display()),
        })?;
        let preset: Preset = serde_json::from_slice(&text)
            .map_err(|e| format!("cannot understand {}: {e}", file.display()))?;
        if let Some(path) = preset.strip.filter(|path| Some(path) != self.shelf.path().as_ref()) {
            self.swap(&WantedStrip::Strip(path))?;
        }
        let mut left = Vec::new();
        for (param, value) in &preset.params {
            if self.set(param, *value).is_err() {
                left.push(param.clone());
            }
        }
        self.engine.remote.bypass(preset.bypass).ok_or_else(busy)?;
        self.bypass = preset.bypass;
        Ok(json!({"preset": name, "left_out": left}))
    }

    /// Calls the preset at `place` of the sorted names: what a MIDI program change asks for.
    ///
    /// # Errors
    /// A sentence.
    pub fn program(&mut self, place: usize) -> Answer {
        let names = self.names()?;
        let name = names
            .get(place)
            .ok_or_else(|| format!("there is no preset {place}: there are {}", names.len()))?
            .clone();
        self.load(&name)
    }
}

fn busy() -> String {
    "too many orders wait; ask again a little later".to_owned()
}

/// The files of `dir` that end so and are well named, without their ends.
fn named(dir: &Path, end: &str) -> std::result::Result<Vec<String>, String> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(format!("cannot read {}: {e}", dir.display())),
    };
    let mut names: Vec<String> = entries
        .flatten()
        .take(10_000)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(end).filter(|name| well_named(name)).map(str::to_owned)
        })
        .collect();
    names.sort_unstable();
    names.truncate(NAMES);
    Ok(names)
}

/// A file's name and nothing else.
fn well_named(name: &str) -> bool {
    let fine = |c: char| c.is_alphanumeric() || "-_ ".contains(c);
    !name.is_empty() && name.chars().count() <= 64 && name.chars().all(fine)
}

fn wanted(swap: &Swap) -> std::result::Result<WantedStrip, String> {
    match (&swap.strip, &swap.amp, &swap.ir) {
        (Some(path), None, None) => Ok(WantedStrip::Strip(path.clone())),
        (None, Some(path), None) => Ok(WantedStrip::Amp(path.clone())),
        (None, None, Some(path)) => Ok(WantedStrip::Ir(path.clone())),
        _ => Err("give one of strip, amp and ir to swap in".to_owned()),
    }
}

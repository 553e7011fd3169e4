//! The shelf of strips that are described in files.

use crate::{
    Cutter, Error, ErrorKind, Loaded, Result,
    files::{Files, read},
    shelf::{Shelf, WantedStrip},
};
use quiet_dsp::{
    ProcessSpec, Stage,
    strip::{Description, Shape},
};
use quiet_types::play::Knob;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The largest description that is read, MiB.
const LARGEST: u64 = 1;

/// Strips by their descriptions; files that they name are looked for beside them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Strips {
    inputs: usize,
    /// What plays now: where from, and the text of it.
    now: Option<(PathBuf, String)>,
    /// Has strips cut for two CPUs.
    #[serde(skip)]
    cutter: Option<Cutter>,
}

/// The description at `path`, and where the files come from that it names.
///
/// # Errors
/// A sentence: the file, the line, the remedy.
pub fn read_strip(path: &Path) -> Result<(Description, Files)> {
    Ok((parse(path)?.0, Files::beside(path)))
}

fn parse(path: &Path) -> Result<(Description, String)> {
    let text = String::from_utf8(read(path, LARGEST)?).map_err(|e| {
        let sentence = format!("{} is no text in UTF-8", path.display());
        Error::of(ErrorKind::Strip, sentence).because(e)
    })?;
    let description =
        Description::parse(&text, &path.display().to_string()).map_err(Error::strip)?;
    Ok((description, text))
}

impl Strips {
    /// A shelf for strips that take `inputs` channels.
    pub fn new(inputs: usize) -> Strips {
        Strips { inputs, now: None, cutter: None }
    }

    /// The same for strips that are played on two CPUs.
    #[must_use]
    pub fn on_two_cpus(self, cutter: Cutter) -> Strips {
        Strips { cutter: Some(cutter), ..self }
    }

    /// How many channels the strip at `path` takes, gives and needs room for: of `inputs` where that is said, else of as many as the file
    /// names, else of two.
    ///
    /// # Errors
    /// A sentence: the file, the line, the remedy.
    pub fn shape(path: &Path, inputs: Option<usize>) -> Result<Shape> {
        let (description, _) = parse(path)?;
        let inputs = inputs.or(description.channels()).unwrap_or(2);
        description.shape(inputs).map_err(Error::strip)
    }
}

/// The text of a strip whose first stage of `kind` names another file.
fn with(text: &str, kind: &str, file: &Path) -> Result<String> {
    let mut table: toml::Table = text
        .parse()
        .map_err(|e| Error::new(format!("cannot read the strip that sounds again: {e}")))?;
    let stages = table.get_mut("stage").and_then(toml::Value::as_array_mut);
    let stage = stages
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_table_mut)
        .find(|stage| stage.get("kind").and_then(toml::Value::as_str) == Some(kind))
        .ok_or_else(|| {
            Error::new(format!("the strip has no stage of kind `{kind}` to swap; swap the strip"))
        })?;
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    stage.insert("file".into(), file.to_string_lossy().into_owned().into());
    Ok(table.to_string())
}

impl Shelf for Strips {
    fn load(&mut self, wanted: &WantedStrip, setting: ProcessSpec) -> Result<Loaded> {
        let nothing = || Error::new("no strip sounds that could be changed: swap a strip in first");
        let (path, text) = match wanted {
            WantedStrip::Strip(path) => (path.clone(), parse(path)?.1),
            WantedStrip::Amp(file) => {
                let (path, text) = self.now.as_ref().ok_or_else(nothing)?;
                (path.clone(), with(text, "amp", file)?)
            }
            WantedStrip::Ir(file) => {
                let (path, text) = self.now.as_ref().ok_or_else(nothing)?;
                (path.clone(), with(text, "ir", file)?)
            }
        };
        let description =
            Description::parse(&text, &path.display().to_string()).map_err(Error::strip)?;
        let shape = description.shape(self.inputs).map_err(Error::strip)?;
        if shape.width > setting.channels {
            return Err(Error::new(format!(
                "{} needs {} channels within, and it plays with {}; start again with this strip",
                path.display(),
                shape.width,
                setting.channels
            )));
        }
        let mut loader = Files::beside(&path);
        let strip = description
            .prepare(self.inputs, setting.rate, setting.block, &mut loader)
            .map_err(Error::strip)?;
        let params = strip
            .params()
            .iter()
            .map(|param| Knob {
                name: param.name.clone(),
                unit: format!("{:?}", param.unit).to_lowercase(),
                low: param.low,
                high: param.high,
                value: param.value,
                default: Some(param.value),
            })
            .collect();
        let readings = strip.readings().to_vec();
        let name = description
            .name
            .clone()
            .or_else(|| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .unwrap_or_default();
        let (mut notes, mut latency) = (strip.notes().to_vec(), strip.latency().0);
        let width = strip.width();
        let mut ready: crate::ReadyStrip = match &self.cutter {
            Some(cutter) => {
                let stages = strip.stages().count();
                let cut = cutter.cut(strip, setting)?;
                latency = cut.latency.0;
                notes.push(cut.note(stages, setting));
                cut.strip
            }
            None => Box::new(strip),
        };
        if width != setting.channels {
            ready = Box::new(Narrow { strip: ready, width });
        }
        self.now = Some((path, text));
        Ok(Loaded { strip: ready, name, params, readings, notes, latency })
    }

    fn path(&self) -> Option<PathBuf> {
        self.now.as_ref().map(|now| now.0.clone())
    }
}

/// A strip of fewer channels than there is room for: it takes the first ones.
struct Narrow {
    strip: crate::ReadyStrip,
    width: usize,
}

impl Stage for Narrow {
    fn process(&mut self, block: &mut quiet_dsp::Block<'_>) {
        let frames = block.frames();
        let own = &mut block.samples()[..self.width * frames];
        self.strip.process(&mut quiet_dsp::Block::new(own, self.width));
    }

    fn latency(&self) -> quiet_types::Frames {
        self.strip.latency()
    }

    fn reset(&mut self) {
        self.strip.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        self.strip.set(param, value)
    }
}

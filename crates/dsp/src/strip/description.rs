//! What a strip file says, checked, with the place of every word.

use super::{
    Given, KINDS, Key, KeyKind, ValueForm,
    key::{Fault, Value},
};
use quiet_types::{FileError, printable};
use std::{fmt, ops::Range};
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

/// No strip has more stages, those in branches included.
const MOST_STAGES: usize = 256;
/// No branch lies deeper.
const DEEPEST: usize = 4;
/// No strip file is longer; a longer one is not read.
const LONGEST_FILE: usize = 1 << 20;
/// No name is longer.
const LONGEST: usize = 60;

/// The text of a strip file, for messages that point into it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    text: String,
    path: String,
}

impl Source {
    pub(crate) fn wrong(
        &self,
        span: Range<usize>,
        title: &str,
        label: &str,
        help: &str,
    ) -> FileError {
        FileError::at(&self.text, &self.path, span, title, label, help)
    }
}

/// A strip as its file describes it.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name, if it has one.
    pub name: Option<String>,
    pub(crate) channels: Option<(usize, Range<usize>)>,
    pub(crate) items: Vec<Item>,
    pub(crate) source: Source,
}

/// One `[[stage]]`.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub name: String,
    pub span: Range<usize>,
    pub on: Option<(Vec<usize>, Range<usize>)>,
    pub bypass: bool,
    pub what: What,
}

#[derive(Clone)]
pub(crate) enum What {
    Stage(&'static KeyKind, Given),
    Split(Vec<Branch>),
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Stage(kind, given) => f.debug_tuple(kind.name).field(given).finish(),
            What::Split(branches) => f.debug_tuple("split").field(branches).finish(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub name: String,
    pub gain: f64,
    pub items: Vec<Item>,
    pub span: Range<usize>,
}

impl Description {
    /// Reads a strip file; `path` is what messages call it.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line: no TOML, an unknown kind or key, a value out
    /// of its range, a name given twice.
    pub fn parse(text: &str, path: &str) -> Result<Description, FileError> {
        let kept = if text.len() > LONGEST_FILE { "" } else { text };
        let source = Source { text: kept.to_owned(), path: path.to_owned() };
        if text.len() > LONGEST_FILE {
            let help = "impulse responses and the like belong in files of their own";
            return Err(source.wrong(0..0, "the strip file is larger than 1 MiB", "here", help));
        }
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let title = error.message().lines().next().unwrap_or("this is not TOML").to_owned();
            let help = "strip files are TOML; see docs/strip.md, or the example of `quietcores \
                        render --help`";
            source.wrong(span, &title, "here", help)
        })?;
        Reader { source: &source, names: Vec::new(), stages: 0 }.strip(table.get_ref()).map(
            |(name, channels, items)| Description { name, channels, items, source: source.clone() },
        )
    }

    /// A strip of `kinds` in order, as if a file had said `kind = ..` and `file = ..`: what
    /// `--amp FILE --ir FILE` means.
    ///
    /// # Errors
    /// As [`Description::parse`].
    pub fn of_files(stages: &[(&str, &str)]) -> Result<Description, FileError> {
        let mut text = String::new();
        for (kind, file) in stages {
            let file = toml::Value::String((*file).to_owned());
            text.push_str(&format!("[[stage]]\nkind = \"{kind}\"\nfile = {file}\n\n"));
        }
        Description::parse(&text, "the command line")
    }

    /// The channels that the file asks for, if it does.
    pub fn channels(&self) -> Option<usize> {
        self.channels.as_ref().map(|(channels, _)| *channels)
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// The names of the files that it needs, in order.
    pub fn files(&self) -> Vec<&str> {
        fn within<'a>(items: &'a [Item], found: &mut Vec<&'a str>) {
            for item in items {
                match &item.what {
                    What::Stage(_, given) => match given.text("file") {
                        "" => {}
                        file => found.push(file),
                    },
                    What::Split(branches) => {
                        branches.iter().for_each(|branch| within(&branch.items, found));
                    }
                }
            }
        }
        let mut found = Vec::new();
        within(&self.items, &mut found);
        found
    }
}

type Table<'a> = DeTable<'a>;
type Head = (Option<String>, Option<(usize, Range<usize>)>, Vec<Item>);

struct Reader<'a> {
    source: &'a Source,
    names: Vec<String>,
    stages: usize,
}

impl Reader<'_> {
    fn wrong(&self, span: Range<usize>, title: &str, label: &str, help: &str) -> FileError {
        self.source.wrong(span, title, label, help)
    }

    fn strip(&mut self, table: &Table<'_>) -> Result<Head, FileError> {
        let (mut name, mut channels) = (None, None);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "strip" => {
                    let head = self.table(value, "`[strip]` is a table")?;
                    for (key, value) in head {
                        match key.get_ref().as_ref() {
                            "name" => name = Some(self.name(value)?),
                            "channels" => {
                                let count = self.number(value, "channels", 1.0, 64.0)?;
                                channels =
                                    Some((self.whole(value, count, "channels")?, value.span()));
                            }
                            _ => return Err(self.unknown(key, &["name", "channels"])),
                        }
                    }
                }
                "stage" => {}
                _ => return Err(self.unknown(key, &["strip", "stage"])),
            }
        }
        let items = match table.get("stage") {
            Some(stages) => self.items(stages, 0)?,
            None => Vec::new(),
        };
        Ok((name, channels, items))
    }

    fn items(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        depth: usize,
    ) -> Result<Vec<Item>, FileError> {
        let mut items = Vec::new();
        for stage in self.array(value, "stages are written as `[[stage]]`")?.iter() {
            self.stages += 1;
            if self.stages > MOST_STAGES {
                let help = "a strip has at most 256 stages";
                return Err(self.wrong(stage.span(), "the strip is too long", "here", help));
            }
            items.push(self.item(stage, depth)?);
        }
        Ok(items)
    }

    fn item(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Item, FileError> {
        let table = self.table(value, "stages are written as `[[stage]]`")?;
        let Some(kind) = table.get("kind") else {
            let title = "a stage does not say what it is";
            return Err(self.wrong(value.span(), title, "this stage", &kinds()));
        };
        let word = self.text(kind, "kind")?;
        let name = match table.get("name") {
            Some(name) => self.name(name)?,
            None => self.free(&word),
        };
        let span = table.get("name").unwrap_or(kind).span();
        self.take(&name, span.clone())?;
        let bypass = match table.get("bypass") {
            Some(bypass) => self.switch(bypass, "bypass")?,
            None => false,
        };
        let on = table.get("on").map(|on| self.on(on)).transpose()?;
        if word == "split" {
            if depth >= DEEPEST {
                let help = "a split lies in at most three others";
                return Err(self.wrong(span, "splits are nested too deeply", "this one", help));
            }
            for (key, _) in table {
                let known = ["kind", "name", "branch"];
                if !known.contains(&key.get_ref().as_ref()) {
                    return Err(self.unknown(key, &known));
                }
            }
            let branches = self.branches(table, &name, &span, depth)?;
            return Ok(Item { name, span, on: None, bypass: false, what: What::Split(branches) });
        }
        let Some(found) = KINDS.iter().find(|known| known.name == word) else {
            let title = format!("there is no stage of kind `{word}`");
            return Err(self.wrong(kind.span(), &title, "this kind", &kinds()));
        };
        let given = self.given(found, table, &span)?;
        Ok(Item { name, span, on, bypass, what: What::Stage(found, given) })
    }

    fn branches(
        &mut self,
        table: &Table<'_>,
        split: &str,
        span: &Range<usize>,
        depth: usize,
    ) -> Result<Vec<Branch>, FileError> {
        let list = match table.get("branch") {
            Some(list) => self.array(list, "branches are written as `[[stage.branch]]`")?,
            None => {
                let help = "write `[[stage.branch]]` for each way that the sound takes";
                return Err(self.wrong(
                    span.clone(),
                    "a split has no branches",
                    "this split",
                    help,
                ));
            }
        };
        let mut branches = Vec::new();
        for (at, branch) in list.iter().enumerate() {
            let keys = self.table(branch, "branches are written as `[[stage.branch]]`")?;
            let (mut name, mut gain, mut items) = (format!("{split}-{}", at + 1), 0.0, Vec::new());
            let mut place = branch.span();
            for (key, value) in keys {
                match key.get_ref().as_ref() {
                    "name" => {
                        name = self.name(value)?;
                        place = value.span();
                    }
                    "gain" => gain = self.number(value, "gain", -120.0, 60.0)?,
                    "stage" => {}
                    _ => return Err(self.unknown(key, &["name", "gain", "stage"])),
                }
            }
            self.take(&name, place)?;
            if let Some(stages) = keys.get("stage") {
                items = self.items(stages, depth + 1)?;
            }
            branches.push(Branch { name, gain, items, span: branch.span() });
        }
        Ok(branches)
    }

    fn given(
        &self,
        kind: &'static KeyKind,
        table: &Table<'_>,
        span: &Range<usize>,
    ) -> Result<Given, FileError> {
        let mut given = Given::default();
        for (key, value) in table {
            let word = key.get_ref().as_ref();
            if ["kind", "name", "on", "bypass"].contains(&word) {
                continue;
            }
            let Some(known) = kind.keys.iter().find(|known| known.name == word) else {
                let mut words = vec!["name", "on", "bypass"];
                words.splice(0..0, kind.keys.iter().map(|key| key.name));
                return Err(self.unknown(key, &words));
            };
            given.values.insert(known.name, self.value(known, value)?);
            given.spans.insert(known.name, value.span());
        }
        for key in kind.keys.iter().filter(|key| !table.contains_key(key.name)) {
            let default = match key.form {
                ValueForm::Number { default: Some(default), .. } => Value::Number(default),
                ValueForm::Switch { default, .. } => Value::Switch(default),
                ValueForm::Choice { default: Some(default), .. } => Value::Text(default.to_owned()),
                ValueForm::Needed { .. }
                | ValueForm::Choice { default: None, .. }
                | ValueForm::Text { needed: true }
                | ValueForm::Rows { .. } => {
                    let title = format!("`{}` needs `{}`", kind.name, key.name);
                    let help = format!("`{}` says: {}", key.name, key.what);
                    return Err(self.wrong(span.clone(), &title, "this stage", &help));
                }
                _ => continue,
            };
            given.values.insert(key.name, default);
        }
        Ok(given)
    }

    fn value(&self, key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Value, FileError> {
        Ok(match key.form {
            ValueForm::Number { low, high, .. } | ValueForm::Needed { low, high, .. } => {
                Value::Number(self.number(value, key.name, low, high)?)
            }
            ValueForm::Switch { .. } => Value::Switch(self.switch(value, key.name)?),
            ValueForm::Choice { of, .. } => {
                let word = self.text(value, key.name)?;
                if !of.contains(&word.as_str()) {
                    let title = format!("`{}` cannot be `{word}`", key.name);
                    let help = format!("it is one of {}", of.join(", "));
                    return Err(self.wrong(value.span(), &title, "here", &help));
                }
                Value::Text(word)
            }
            ValueForm::Text { .. } => Value::Text(self.text(value, key.name)?),
            ValueForm::Numbers { low, high, most, .. } => {
                Value::Numbers(self.numbers(value, key.name, low, high, most)?)
            }
            ValueForm::Rows { low, high, most, .. } => {
                let rows = self.array(value, &format!("`{}` is a list of lists", key.name))?;
                if rows.is_empty() || rows.len() > most {
                    let title = format!("`{}` has {} rows", key.name, rows.len());
                    let help = format!("write 1 to {most} of them");
                    return Err(self.wrong(value.span(), &title, "here", &help));
                }
                let rows = rows.iter().map(|row| self.numbers(row, key.name, low, high, most));
                Value::Rows(rows.collect::<Result<_, _>>()?)
            }
        })
    }

    fn numbers(
        &self,
        value: &Spanned<DeValue<'_>>,
        name: &str,
        low: f64,
        high: f64,
        most: usize,
    ) -> Result<Vec<f64>, FileError> {
        let list = self.array(value, &format!("`{name}` is a list of numbers"))?;
        if list.is_empty() || list.len() > most {
            let title = format!("`{name}` has {} numbers", list.len());
            let help = format!("write 1 to {most} of them");
            return Err(self.wrong(value.span(), &title, "this list", &help));
        }
        list.iter().map(|one| self.number(one, name, low, high)).collect()
    }

    fn number(
        &self,
        value: &Spanned<DeValue<'_>>,
        name: &str,
        low: f64,
        high: f64,
    ) -> Result<f64, FileError> {
        let number = match value.get_ref() {
            DeValue::Integer(whole) => {
                i64::from_str_radix(whole.as_str(), whole.radix()).ok().map(|n| n as f64)
            }
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => {
                let title = format!("`{name}` is a number");
                let help = "numbers are written without quotes";
                return Err(self.wrong(value.span(), &title, "not a number", help));
            }
        };
        match number {
            Some(number) if (low..=high).contains(&number) => Ok(number),
            _ => {
                let title = format!("`{name}` is out of its range");
                let help = format!("it is {low} to {high}");
                Err(self.wrong(value.span(), &title, "here", &help))
            }
        }
    }

    fn whole(
        &self,
        value: &Spanned<DeValue<'_>>,
        number: f64,
        name: &str,
    ) -> Result<usize, FileError> {
        if number.fract() != 0.0 {
            let title = format!("`{name}` is a whole number");
            return Err(self.wrong(value.span(), &title, "here", "leave its fraction out"));
        }
        Ok(number as usize)
    }

    fn on(&self, value: &Spanned<DeValue<'_>>) -> Result<(Vec<usize>, Range<usize>), FileError> {
        let mut on = Vec::new();
        for one in self.array(value, "`on` is a list of channels, counted from 0")?.iter() {
            let number = self.number(one, "on", 0.0, 63.0)?;
            let channel = self.whole(one, number, "on")?;
            if on.contains(&channel) {
                let title = format!("channel {channel} is named twice");
                return Err(self.wrong(one.span(), &title, "the second time", "name it once"));
            }
            on.push(channel);
        }
        if on.is_empty() {
            let help = "leave `on` out for all channels; `bypass = true` silences the stage";
            return Err(self.wrong(value.span(), "`on` names no channel", "here", help));
        }
        Ok((on, value.span()))
    }

    fn switch(&self, value: &Spanned<DeValue<'_>>, name: &str) -> Result<bool, FileError> {
        match value.get_ref() {
            DeValue::Boolean(on) => Ok(*on),
            _ => {
                let title = format!("`{name}` is true or false");
                Err(self.wrong(value.span(), &title, "here", "write it without quotes"))
            }
        }
    }

    fn text(&self, value: &Spanned<DeValue<'_>>, name: &str) -> Result<String, FileError> {
        match value.get_ref() {
            DeValue::String(text) if text.contains('\0') || text.is_empty() => {
                let title = format!("`{name}` is empty, or holds a zero byte");
                Err(self.wrong(value.span(), &title, "here", "write what is meant"))
            }
            DeValue::String(text) => Ok(text.to_string()),
            _ => {
                let title = format!("`{name}` is a text");
                Err(self.wrong(value.span(), &title, "here", "texts are in quotes"))
            }
        }
    }

    fn name(&self, value: &Spanned<DeValue<'_>>) -> Result<String, FileError> {
        let text = self.text(value, "name")?;
        let odd = |c: char| c.is_control() || c == '.' || c == '=';
        if text.trim().is_empty() || text.chars().count() > LONGEST || text.chars().any(odd) {
            let help = "a name has at most 60 characters and no dot: parameters are called \
                        `name.param`";
            return Err(self.wrong(value.span(), "this is not a name", "here", help));
        }
        Ok(text)
    }

    /// A name for a stage without one: its kind, and a number where that is taken.
    fn free(&self, kind: &str) -> String {
        let kind = printable(kind, LONGEST).replace('.', "");
        let taken = |name: &String| self.names.contains(name);
        (1..)
            .map(|n| if n == 1 { kind.clone() } else { format!("{kind}-{n}") })
            .find(|name| !taken(name))
            .unwrap_or(kind.clone())
    }

    fn take(&mut self, name: &str, span: Range<usize>) -> Result<(), FileError> {
        if self.names.iter().any(|taken| taken == name) {
            let title = format!("two stages are called `{name}`");
            let help = "give each a name of its own: parameters are told apart by it";
            return Err(self.wrong(span, &title, "the second one", help));
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    fn unknown(&self, key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str]) -> FileError {
        let title = format!("unknown key `{}`", key.get_ref());
        let help = format!("known here: {}", known.join(", "));
        self.wrong(key.span(), &title, "nothing that is not understood is passed over", &help)
    }

    fn table<'v, 'i>(
        &self,
        value: &'v Spanned<DeValue<'i>>,
        title: &str,
    ) -> Result<&'v Table<'i>, FileError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.wrong(value.span(), title, "here", "see docs/strip.md")),
        }
    }

    fn array<'v, 'i>(
        &self,
        value: &'v Spanned<DeValue<'i>>,
        title: &str,
    ) -> Result<&'v DeArray<'i>, FileError> {
        match value.get_ref() {
            DeValue::Array(array) => Ok(array),
            _ => Err(self.wrong(value.span(), title, "here", "see docs/strip.md")),
        }
    }
}

fn kinds() -> String {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    format!("`kind` is one of {}, split", names.join(", "))
}

impl Item {
    /// The place that a fault of this stage points at.
    pub(crate) fn fault(&self, source: &Source, fault: &Fault) -> FileError {
        let span = match (&self.what, fault.key) {
            (_, Some("on")) => self.on.as_ref().map(|(_, span)| span.clone()),
            (What::Stage(_, given), Some(key)) => given.spans.get(key).cloned(),
            _ => None,
        };
        let span = span.unwrap_or_else(|| self.span.clone());
        source.wrong(span, &format!("{}: {}", self.name, fault.title), "here", &fault.help)
    }
}

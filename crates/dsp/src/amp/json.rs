//! Reads JSON that nobody vouches for: bounded, each number finite, each key known by its path.

use super::Error;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::{cell::Cell, fmt};

/// The longest file that is read. The largest amps in use have some hundred thousand weights.
const MAX_BYTES: usize = 32 << 20;
/// The most values (rows of numbers count as one each) in a file.
const MAX_VALUES: usize = 1 << 20;

/// A JSON value. Rows of numbers are kept as such.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    Row(Vec<f64>),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::Row(_) | Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

struct Seed<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let left = self.0.get();
        if left == 0 {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        }
        self.0.set(left - 1);
        from.deserialize_any(Build(self.0))
    }
}

struct Build<'a>(&'a Cell<usize>);

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v as f64))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v as f64))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Number(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let (mut row, mut list) = (Vec::new(), Vec::new());
        loop {
            // A number costs nothing of the budget: it is as long in the file as in memory.
            let before = self.0.get();
            let Some(value) = from.next_element_seed(Seed(self.0))? else { break };
            match value {
                Value::Number(n) if list.is_empty() => {
                    self.0.set(before);
                    row.push(n);
                }
                other => {
                    // Mixed: numbers seen so far become values, and cost as such.
                    if !row.is_empty() {
                        if row.len() > self.0.get() {
                            return Err(A::Error::custom(format!("more than {MAX_VALUES} values")));
                        }
                        self.0.set(self.0.get() - row.len());
                        list.extend(row.drain(..).map(Value::Number));
                    }
                    list.push(other);
                }
            }
        }
        Ok(if list.is_empty() && !row.is_empty() { Value::Row(row) } else { Value::List(list) })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object: Vec<(String, Value)> = Vec::new();
        while let Some(key) = from.next_key::<String>()? {
            // Few keys stand in an object that sounds; a hostile one is cut off here.
            if object.len() >= 256 {
                return Err(A::Error::custom("an object with more than 256 keys"));
            }
            if object.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(format!("the key {key:?} occurs twice")));
            }
            let value = from.next_value_seed(Seed(self.0))?;
            object.push((key, value));
        }
        Ok(Value::Object(object))
    }
}

/// Reads a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::file(format!(
            "is {} MiB long; an amp has at most {} MiB",
            bytes.len() >> 20,
            MAX_BYTES >> 20
        )));
    }
    // Editors on Windows put a byte order mark before the text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let left = Cell::new(MAX_VALUES);
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let value = Seed(&left).deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    value.map_err(|error| {
        let line = bytes.split(|b| *b == b'\n').nth(error.line().saturating_sub(1));
        let column = error.column();
        let near =
            line.map(|l| &l[column.saturating_sub(10).min(l.len())..(column + 9).min(l.len())]);
        let near = String::from_utf8_lossy(near.unwrap_or_default()).into_owned();
        let word = ["NaN", "Infinity"].iter().find(|word| near.contains(**word));
        match word {
            Some(_) => Error::file(format!(
                "holds a number that is none (NaN or infinity) in line {}, column {}",
                error.line(),
                error.column()
            )),
            None => Error::file(format!("is not JSON that an amp could be: {error}")),
        }
    })
}

/// A value and the path of keys that leads to it. Every refusal names the path.
#[derive(Clone)]
pub(super) struct At<'a> {
    pub value: &'a Value,
    pub path: String,
}

impl<'a> At<'a> {
    pub fn root(value: &'a Value) -> At<'a> {
        At { value, path: String::new() }
    }

    /// A refusal of what stands here.
    pub fn refuse(&self, why: impl fmt::Display) -> Error {
        Error::key(&self.path, why.to_string())
    }

    fn step(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn object(&self) -> Result<&'a [(String, Value)], Error> {
        match self.value {
            Value::Object(object) => Ok(object),
            other => Err(self.refuse(format!("is {}, not an object", other.kind()))),
        }
    }

    /// Whether this is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.value, Value::Object(_))
    }

    /// The value of a key, if it is there and not null.
    pub fn get(&self, key: &str) -> Result<Option<At<'a>>, Error> {
        let found = self.object()?.iter().find(|(k, _)| k == key);
        Ok(found
            .filter(|(_, v)| !matches!(v, Value::Null))
            .map(|(_, value)| At { value, path: self.step(key) }))
    }

    /// The value of a key that must be there.
    pub fn need(&self, key: &str) -> Result<At<'a>, Error> {
        self.get(key)?.ok_or_else(|| Error::key(&self.step(key), "is missing".to_owned()))
    }

    /// Refuses keys besides these: one that is not understood may change the sound.
    pub fn only(&self, known: &[&str]) -> Result<(), Error> {
        for (key, _) in self.object()? {
            if !known.contains(&key.as_str()) {
                return Err(Error::key(
                    &self.step(key),
                    "is not a known key here, and might change the sound".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// The elements of a list.
    pub fn list(&self) -> Result<Vec<At<'a>>, Error> {
        match self.value {
            Value::List(list) => Ok(list
                .iter()
                .enumerate()
                .map(|(n, value)| At { value, path: format!("{}[{n}]", self.path) })
                .collect()),
            other => Err(self.refuse(format!("is {}, not a list of objects", other.kind()))),
        }
    }

    /// Whether this is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.value, Value::List(_) | Value::Row(_))
    }

    /// Numbers.
    pub fn row(&self) -> Result<&'a [f64], Error> {
        match self.value {
            Value::Row(row) => Ok(row),
            Value::List(list) if list.is_empty() => Ok(&[]),
            Value::List(list) => {
                let at = list.iter().position(|v| !matches!(v, Value::Number(_))).unwrap_or(0);
                let kind = list.get(at).map_or("nothing", Value::kind);
                Err(self
                    .refuse(format!("holds {kind} at place {at}, where only numbers may stand")))
            }
            other => Err(self.refuse(format!("is {}, not a list of numbers", other.kind()))),
        }
    }

    /// Weights: numbers that are finite as f32.
    pub fn weights(&self) -> Result<Vec<f32>, Error> {
        let row = self.row()?;
        row.iter()
            .enumerate()
            .map(|(n, w)| {
                let single = *w as f32;
                if single.is_finite() {
                    Ok(single)
                } else {
                    Err(self.refuse(format!("holds {w} at place {n}, beyond any 32-bit number")))
                }
            })
            .collect()
    }

    /// A matrix of `rows` x `columns`, row after row.
    pub fn matrix(&self, rows: usize, columns: usize) -> Result<Vec<f32>, Error> {
        let list = match self.value {
            Value::List(_) => self.list()?,
            other => return Err(self.refuse(format!("is {}, not a list of rows", other.kind()))),
        };
        if list.len() != rows {
            return Err(self.refuse(format!("has {} rows, not {rows}", list.len())));
        }
        let mut all = Vec::with_capacity(rows * columns);
        for row in list {
            let one = row.weights()?;
            if one.len() != columns {
                return Err(row.refuse(format!("has {} numbers, not {columns}", one.len())));
            }
            all.extend(one);
        }
        Ok(all)
    }

    /// `count` weights.
    pub fn vector(&self, count: usize) -> Result<Vec<f32>, Error> {
        let all = self.weights()?;
        if all.len() != count {
            return Err(self.refuse(format!("has {} numbers, not {count}", all.len())));
        }
        Ok(all)
    }

    /// A finite number.
    pub fn number(&self) -> Result<f64, Error> {
        match self.value {
            Value::Number(n) => Ok(*n),
            other => Err(self.refuse(format!("is {}, not a number", other.kind()))),
        }
    }

    /// A finite 32-bit number.
    pub fn single(&self) -> Result<f32, Error> {
        let n = self.number()?;
        if (n as f32).is_finite() {
            Ok(n as f32)
        } else {
            Err(self.refuse(format!("is {n}, beyond any 32-bit number")))
        }
    }

    /// A whole number from `least` to `most`.
    pub fn whole(&self, least: usize, most: usize) -> Result<usize, Error> {
        whole(self.number()?, least, most).map_err(|why| self.refuse(why))
    }

    /// Whole numbers from `least` to `most`.
    pub fn wholes(&self, least: usize, most: usize) -> Result<Vec<usize>, Error> {
        let row = self.row()?;
        row.iter()
            .enumerate()
            .map(|(n, v)| {
                whole(*v, least, most)
                    .map_err(|why| Error::key(&format!("{}[{n}]", self.path), why))
            })
            .collect()
    }

    /// True or false.
    pub fn truth(&self) -> Result<bool, Error> {
        match self.value {
            Value::Bool(b) => Ok(*b),
            other => Err(self.refuse(format!("is {}, not true or false", other.kind()))),
        }
    }

    /// Text.
    pub fn text(&self) -> Result<&'a str, Error> {
        match self.value {
            Value::Text(text) => Ok(text),
            other => Err(self.refuse(format!("is {}, not text", other.kind()))),
        }
    }
}

fn whole(n: f64, least: usize, most: usize) -> Result<usize, String> {
    if n.fract() != 0.0 {
        return Err(format!("is {n}, not a whole number"));
    }
    if n < least as f64 || n > most as f64 {
        return Err(format!("is {n}; {least} to {most} are possible"));
    }
    Ok(n as usize)
}

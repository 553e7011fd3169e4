//! What can be asked.

use quiet_types::live::SoundWish;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

/// One request. In JSON its kind stands under `do`: `{"do":"set","param":"drive.gain","value":3}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// How it goes.
    Stats,
    /// What faces ask for as well.
    Wish(SoundWish),
    /// Put another strip, or the same with another amp or IR, in the place of the one that sounds.
    Swap(Swap),
    /// End the program.
    Quit,
}

/// What faces do not ask for.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Own {
    Stats {},
    Swap(Swap),
    Quit {},
}

impl Request {
    fn of(value: Value) -> serde_json::Result<Request> {
        if !matches!(value["do"].as_str(), Some("stats" | "swap" | "quit")) {
            return serde_json::from_value(value).map(Request::Wish);
        }
        Ok(match serde_json::from_value(value)? {
            Own::Stats {} => Request::Stats,
            Own::Swap(swap) => Request::Swap(swap),
            Own::Quit {} => Request::Quit,
        })
    }
}

/// What to swap in; exactly one is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// A strip's description.
    pub strip: Option<PathBuf>,
    /// A neural amp.
    pub amp: Option<PathBuf>,
    /// An impulse response.
    pub ir: Option<PathBuf>,
}

/// A request and the `id` that came with it, to be sent back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub id: Option<Value>,
    pub request: Result<Request, String>,
}

/// Reads one line.
pub(crate) fn parse(line: &[u8]) -> Asked {
    let mut value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(e) => {
            let request = Err(format!(
                "this line is no JSON ({e}); a request is one object a line, such as \
                 {{\"do\":\"stats\"}}"
            ));
            return Asked { id: None, request };
        }
    };
    let id = value.as_object_mut().and_then(|object| object.remove("id"));
    let id = id.filter(|id| id.is_number() || id.as_str().is_some_and(|text| text.len() <= 100));
    let request = Request::of(value).map_err(|e| {
        format!(
            "cannot understand this request: {e}; `do` is stats, params, set, bypass, mute, swap, \
             strips, strip, presets, save, load or quit"
        )
    });
    Asked { id, request }
}

/// Reads a line of words, as they are typed: `set drive.gain 3`, `bypass on`, `swap amp FILE`.
///
/// # Errors
/// A sentence.
pub(crate) fn typed(line: &str) -> Result<Request, String> {
    let line = line.trim();
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let wish = |wish| Ok(Request::Wish(wish));
    let two = || rest.split_once(char::is_whitespace).map(|(a, b)| (a, b.trim()));
    match verb {
        "stats" => Ok(Request::Stats),
        "params" => wish(SoundWish::Params {}),
        "set" => {
            let (param, value) = two().ok_or("give a parameter and a value: set drive.gain 3")?;
            let value = value.parse().map_err(|_| format!("`{value}` is no number"))?;
            wish(SoundWish::Set { param: param.to_owned(), value })
        }
        "bypass" => match rest {
            "on" | "" => wish(SoundWish::Bypass { on: true }),
            "off" => wish(SoundWish::Bypass { on: false }),
            _ => Err("bypass is on or off".to_owned()),
        },
        "mute" => match rest {
            "on" | "" => wish(SoundWish::Mute { on: true }),
            "off" => wish(SoundWish::Mute { on: false }),
            _ => Err("mute is on or off".to_owned()),
        },
        "swap" => {
            let (what, path) = two().ok_or("give what to swap: swap strip FILE, swap amp FILE")?;
            let path = Some(PathBuf::from(path));
            match what {
                "strip" => Ok(Request::Swap(Swap { strip: path, ..Default::default() })),
                "amp" => Ok(Request::Swap(Swap { amp: path, ..Default::default() })),
                "ir" => Ok(Request::Swap(Swap { ir: path, ..Default::default() })),
                _ => Err("what to swap is strip, amp or ir".to_owned()),
            }
        }
        "strips" => wish(SoundWish::Strips {}),
        "presets" => wish(SoundWish::Presets {}),
        "strip" => wish(SoundWish::Strip { name: rest.to_owned() }),
        "save" => wish(SoundWish::Save { preset: rest.to_owned() }),
        "load" => wish(SoundWish::Load { preset: rest.to_owned() }),
        "quit" | "exit" => Ok(Request::Quit),
        _ => Err(format!(
            "`{}` is no order; type help to see them all",
            quiet_types::printable(verb, 40)
        )),
    }
}

/// One line, for the fuzz targets.
#[cfg(fuzzing)]
pub fn fuzzed(bytes: &[u8]) {
    let asked = parse(bytes);
    if let Err(why) = asked.request {
        assert!(!why.is_empty());
    }
    if let Ok(line) = std::str::from_utf8(bytes)
        && let Err(why) = typed(line)
    {
        assert!(!why.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests_or_sentences() {
        let good = parse(br#"{"id":7,"do":"set","param":"drive.gain","value":3}"#);
        assert_eq!(good.id, Some(7.into()));
        let set = SoundWish::Set { param: "drive.gain".into(), value: 3.0 };
        let set = Request::Wish(set);
        assert_eq!(good.request, Ok(set.clone()));
        assert_eq!(typed(" set  drive.gain   3 "), Ok(set));
        let swap = Swap { amp: Some("a b.nam".into()), ..Default::default() };
        assert_eq!(typed("swap amp a b.nam"), Ok(Request::Swap(swap.clone())));
        assert_eq!(parse(br#"{"do":"swap","amp":"a b.nam"}"#).request, Ok(Request::Swap(swap)));
        let bad: [&[u8]; 8] = [
            b"",
            b"{",
            b"[]",
            b"7",
            b"\xff\xfe",
            br#"{"do":"fly"}"#,
            br#"{"do":"set","param":"x"}"#,
            br#"{"do":"stats","more":1}"#,
        ];
        for line in bad {
            let error = parse(line).request.unwrap_err();
            assert!(error.contains("request"), "{error}");
        }
        let deep = "[".repeat(100_000);
        assert!(
            parse(deep.as_bytes()).request.is_err(),
            "deep nesting does not overflow the stack"
        );
        for line in ["", "fly", "set x", "set x y", "swap amp", "bypass maybe"] {
            assert!(typed(line).is_err(), "{line}");
        }
    }
}

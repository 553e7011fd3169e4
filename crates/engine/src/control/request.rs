//! What can be asked.

use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

/// One request. In JSON its kind stands under `do`: `{"do":"set","param":"drive.gain","value":3}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// How it goes.
    Stats,
    /// The parameters of the strip and their values.
    Params,
    /// Change a parameter.
    Set {
        /// Its name.
        param: String,
        /// Its new value.
        value: f32,
    },
    /// Let the input through in place of the strip.
    Bypass {
        /// Or back.
        on: bool,
    },
    /// Silence what is heard.
    Mute {
        /// Or let it be heard again.
        on: bool,
    },
    /// Put another strip, or the same with another amp or IR, in the place of the one that sounds.
    Swap(Swap),
    /// The names of the strips in the folder of the one that sounds.
    Strips,
    /// The names of the presets.
    Presets,
    /// Keep strip and parameters under a name.
    Save {
        /// Letters, digits, `-`, `_` and spaces.
        preset: String,
    },
    /// Call a preset.
    Load {
        /// Its name.
        preset: String,
    },
    /// End the program.
    Quit,
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
    // serde lets a variant without fields pass with any.
    let more = value.as_object().and_then(|o| o.keys().find(|key| *key != "do").cloned());
    let request = serde_json::from_value(value).map_err(|e| {
        format!(
            "cannot understand this request: {e}; `do` is stats, params, set, bypass, mute, swap, \
             strips, presets, save, load or quit"
        )
    });
    let request = match (request, more) {
        (
            Ok(
                Request::Stats
                | Request::Params
                | Request::Strips
                | Request::Presets
                | Request::Quit,
            ),
            Some(key),
        ) => Err(format!(
            "this request takes nothing beside `do`, and has `{}`",
            quiet_types::printable(&key, 40)
        )),
        (request, _) => request,
    };
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
    let two = || rest.split_once(char::is_whitespace).map(|(a, b)| (a, b.trim()));
    match verb {
        "stats" => Ok(Request::Stats),
        "params" => Ok(Request::Params),
        "set" => {
            let (param, value) = two().ok_or("give a parameter and a value: set drive.gain 3")?;
            let value = value.parse().map_err(|_| format!("`{value}` is no number"))?;
            Ok(Request::Set { param: param.to_owned(), value })
        }
        "bypass" => match rest {
            "on" | "" => Ok(Request::Bypass { on: true }),
            "off" => Ok(Request::Bypass { on: false }),
            _ => Err("bypass is on or off".to_owned()),
        },
        "mute" => match rest {
            "on" | "" => Ok(Request::Mute { on: true }),
            "off" => Ok(Request::Mute { on: false }),
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
        "strips" => Ok(Request::Strips),
        "presets" => Ok(Request::Presets),
        "save" => Ok(Request::Save { preset: rest.to_owned() }),
        "load" => Ok(Request::Load { preset: rest.to_owned() }),
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
        let set = Request::Set { param: "drive.gain".into(), value: 3.0 };
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

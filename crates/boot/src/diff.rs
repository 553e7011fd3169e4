//! The change of a file as people read it: a unified diff. Pure.

use quiet_types::printable;

/// Lines shown before and after a change.
const AROUND: usize = 3;
/// Lines of a file beyond which only the first and last change are looked for.
const MOST: usize = 3000;

/// A unified diff; empty where nothing differs. `None` stands for a file that is not there.
pub fn unified(path: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    if old == new {
        return String::new();
    }
    let name = |side: char, text: Option<&[u8]>| match text {
        Some(_) => format!("{side}{}", printable(path, 300)),
        None => "/dev/null".into(),
    };
    let (before, after) = (lines(old), lines(new));
    let mut text = format!("--- {}\n+++ {}\n", name('a', old), name('b', new));
    for hunk in hunks(&script(&before, &after)) {
        text.push_str(&show(&hunk, &before, &after));
    }
    text
}

/// Lines with their ends.
fn lines(text: Option<&[u8]>) -> Vec<&[u8]> {
    text.unwrap_or_default().split_inclusive(|b| *b == b'\n').collect()
}

/// One line of the script: kept, taken out, put in, with its index in the old or new text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Edit {
    Keep(usize, usize),
    Out(usize),
    In(usize),
}

fn script(old: &[&[u8]], new: &[&[u8]]) -> Vec<Edit> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b);
    let tail = tail.count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut edits: Vec<Edit> = (0..head).map(|i| Edit::Keep(i, i)).collect();
    if a.len() > MOST || b.len() > MOST {
        edits.extend((0..a.len()).map(|i| Edit::Out(head + i)));
        edits.extend((0..b.len()).map(|j| Edit::In(head + j)));
    } else {
        middle(a, b, head, &mut edits);
    }
    edits.extend((0..tail).map(|k| Edit::Keep(old.len() - tail + k, new.len() - tail + k)));
    edits
}

/// The longest common subsequence by the table of its lengths.
fn middle(a: &[&[u8]], b: &[&[u8]], offset: usize, edits: &mut Vec<Edit>) {
    let width = b.len() + 1;
    let mut common = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i * width + j] = if a[i] == b[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            edits.push(Edit::Keep(offset + i, offset + j));
            (i, j) = (i + 1, j + 1);
        } else if i < a.len()
            && (j == b.len() || common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            edits.push(Edit::Out(offset + i));
            i += 1;
        } else {
            edits.push(Edit::In(offset + j));
            j += 1;
        }
    }
}

/// The script cut into hunks with [`AROUND`] kept lines at their ends.
fn hunks(script: &[Edit]) -> Vec<Vec<Edit>> {
    let changed: Vec<usize> =
        (0..script.len()).filter(|i| !matches!(script[*i], Edit::Keep(..))).collect();
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for at in changed {
        let (from, to) = (at.saturating_sub(AROUND), (at + AROUND + 1).min(script.len()));
        match hunks.last_mut() {
            Some(last) if from <= last.1 => last.1 = to,
            _ => hunks.push((from, to)),
        }
    }
    hunks.into_iter().map(|(from, to)| script[from..to].to_vec()).collect()
}

fn show(hunk: &[Edit], old: &[&[u8]], new: &[&[u8]]) -> String {
    let olds: Vec<usize> = hunk
        .iter()
        .filter_map(|edit| match edit {
            Edit::Keep(i, _) | Edit::Out(i) => Some(*i),
            Edit::In(_) => None,
        })
        .collect();
    let news: Vec<usize> = hunk
        .iter()
        .filter_map(|edit| match edit {
            Edit::Keep(_, j) | Edit::In(j) => Some(*j),
            Edit::Out(_) => None,
        })
        .collect();
    let range = |lines: &[usize]| match lines {
        [] => "0,0".to_owned(),
        [one] => format!("{}", one + 1),
        [first, ..] => format!("{},{}", first + 1, lines.len()),
    };
    let mut text = format!("@@ -{} +{} @@\n", range(&olds), range(&news));
    for edit in hunk {
        let (sign, line) = match edit {
            Edit::Keep(i, _) => (' ', old[*i]),
            Edit::Out(i) => ('-', old[*i]),
            Edit::In(j) => ('+', new[*j]),
        };
        let ended = line.ends_with(b"\n");
        let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
        text.push_str(&format!("{sign}{}\n", printable(&line, 4096)));
        if !ended {
            text.push_str("\\ No newline at end of file\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{io::Write, process::Command};

    #[test]
    fn a_diff_reads_as_diff_u_writes_it() {
        let old = b"a\nb\nc\nd\ne\n";
        let new = b"a\nb\nc\nD\ne";
        assert_eq!(
            unified("/x", Some(old), Some(new)),
            "--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n a\n b\n c\n-d\n-e\n+D\n+e\n\\ No newline at end of file\n"
        );
        assert_eq!(
            unified("/x", None, Some(b"a\n")),
            "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"
        );
        assert_eq!(unified("/x", Some(old), Some(old)), "");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn patch_makes_the_new_file_of_the_old_one(
            old in "([ab]\n|c\n){0,12}[a-c]{0,1}", new in "([ab]\n|c\n){0,12}[a-c]{0,1}"
        ) {
            if old != new && !old.is_empty() && !new.is_empty() && has_patch() {
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join("x"), &old).unwrap();
                let diff = unified("/x", Some(old.as_bytes()), Some(new.as_bytes()));
                let mut patch = Command::new("patch")
                    .args(["-s", "-p1", "--no-backup-if-mismatch", "-F0"])
                    .current_dir(dir.path())
                    .stdin(std::process::Stdio::piped())
                    .spawn()
                    .unwrap();
                patch.stdin.take().unwrap().write_all(diff.as_bytes()).unwrap();
                prop_assert!(patch.wait().unwrap().success(), "{}", diff);
                prop_assert_eq!(std::fs::read_to_string(dir.path().join("x")).unwrap(), new);
            }
        }
    }

    /// patch(1) is the oracle where it is installed; the other test needs nothing.
    fn has_patch() -> bool {
        Command::new("patch").arg("--version").output().is_ok()
    }
}

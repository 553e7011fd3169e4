//! Boot loaders' folders with one file of any content: loaders are found and changes proposed, or there is a sentence.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_boot::{PersistRequest, Term, entries_of, loaders, propose};
use quiet_linux::files;
use quiet_types::boot::{BootParameters, Parameter};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// A copy of a fixture, and its files.
struct Copied {
    dir: tempfile::TempDir,
    files: Vec<PathBuf>,
}

fn copy(from: &Path, to: &Path, files: &mut Vec<PathBuf>) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a fixture") {
        let entry = entry.expect("an entry").path();
        let at = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copy(&entry, &at, files);
        } else {
            fs::copy(&entry, &at).expect("a copy");
            if fs::metadata(&at).is_ok_and(|file| file.len() > 0) {
                files.push(at);
            }
        }
    }
    files.sort();
}

fn trees() -> &'static [Copied] {
    static TREES: OnceLock<Vec<Copied>> = OnceLock::new();
    TREES.get_or_init(|| {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/boot");
        let mut found: Vec<PathBuf> = fs::read_dir(fixtures)
            .expect("fixtures")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        found.retain(|path| path.is_dir());
        found.sort();
        let tree = |from: &PathBuf| {
            let mut files = Vec::new();
            let dir = tempfile::tempdir().expect("a folder");
            copy(from, dir.path(), &mut files);
            Copied { dir, files }
        };
        found.iter().map(tree).collect()
    })
}

fuzz_target!(|bytes: &[u8]| {
    // The last two bytes choose the file that the rest stands in.
    let Some((file, rest)) = bytes.split_last() else { return };
    let Some((tree, text)) = rest.split_last() else { return };
    let trees = trees();
    let tree = &trees[usize::from(*tree) % trees.len()];
    let file = &tree.files[usize::from(*file) % tree.files.len()];
    let was = fs::read(file).expect("it was copied");
    fs::write(file, text).expect("it is written");
    let place = files::Tree::at(tree.dir.path()).expect("a place");
    let parameter = |name: &str, value: &str| Parameter {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        why: "to be tried".to_owned(),
    };
    let asked = BootParameters {
        parameters: vec![parameter("nohz_full", "2-3"), parameter("rcu_nocbs", "2-3")],
        ..BootParameters::default()
    };
    for loader in loaders(&place) {
        if let Err(why) = entries_of(&place, &loader) {
            assert!(!why.is_empty());
        }
        for term in [Term::Lasting, Term::OneBoot] {
            let request = PersistRequest { asked: &asked, loader: &loader, service: None, term, kernel: None };
            match propose(&place, &request) {
                Ok(proposal) => drop(proposal.diff()),
                Err(why) => assert!(!why.to_string().is_empty()),
            }
        }
    }
    fs::write(file, was).expect("it is put back");
});

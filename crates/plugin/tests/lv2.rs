//! Hosts of Debian's find the LV2 bundle and play it: the same bits as `render`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hosted;

use hosted::{bundle, here, rendered_one, said_by, samples, wav_one};
use quiet_testing::{Why, program, skip};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const URI: &str = "urn:quietcores:strip";

fn said(folder: &Path, program: &Path, words: &[&str]) -> String {
    let path = format!("{}/lv2:/usr/lib/lv2", folder.display());
    let done = Command::new(program).args(words).env("LV2_PATH", path).output().unwrap();
    let text = said_by(&done);
    assert!(done.status.success(), "{words:?}: {text}");
    text
}

#[test]
fn hosts_find_the_bundle_with_all_its_ports() {
    let Some(lv2info) = program("lv2info") else {
        return skip(Why::Program("lv2info", "lilv-utils"));
    };
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), &[]);
    let text = said(folder.path(), &lv2info, &[URI]);
    for port in ["in", "out", "input", "output", "latency", "control", "notify"] {
        let found = text.lines().any(|line| {
            line.split_once("Symbol:").is_some_and(|(_, symbol)| symbol.trim() == port)
        });
        assert!(found, "{port}: {text}");
    }
    for word in ["yes, reported by port 4", "state#interface", "test"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// LV2's own descriptions, as Debian's lv2-dev and every host bring them.
fn lv2_itself() -> Vec<PathBuf> {
    let folders = fs::read_dir("/usr/lib/lv2").into_iter().flatten().flatten();
    let files = folders.filter_map(|folder| fs::read_dir(folder.path()).ok()).flatten().flatten();
    files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|e| e == "ttl"))
        .collect()
}

#[test]
fn the_description_is_valid() {
    let Some(validate) = program("sord_validate") else {
        return skip(Why::Program("sord_validate", "sordi"));
    };
    let specification = lv2_itself();
    if !specification.iter().any(|path| path.ends_with("lv2core.ttl")) {
        return skip(Why::Machine("no specification of LV2 lies under /usr/lib/lv2".to_owned()));
    }
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str| {
        let ours = fs::read_dir(here("quietcores.lv2")).unwrap().map(|file| file.unwrap().path());
        let text = fs::read_to_string(here("quietcores.lv2/quietcores.ttl")).unwrap();
        // One word that is wrong shall be found.
        let spoilt = folder.path().join(name);
        let word = if name == "spoilt.ttl" { "lv2:index \"one\"" } else { "lv2:index 1" };
        fs::write(&spoilt, text.replace("lv2:index 1 ", &format!("{word} "))).unwrap();
        let whole = ours.filter(|path| path.ends_with("manifest.ttl")).chain([spoilt]);
        let done = Command::new(&validate).args(&specification).args(whole).output().unwrap();
        (done.status.success(), said_by(&done))
    };
    let (valid, text) = check("whole.ttl");
    assert!(valid && text.contains("Found 0 errors"), "{text}");
    let (valid, text) = check("spoilt.ttl");
    assert!(!valid || !text.contains("Found 0 errors"), "{text}");
}

#[test]
fn a_host_without_numbers_for_names_is_refused_by_it() {
    let Some(lv2proc) = program("lv2proc") else {
        return skip(Why::Program("lv2proc", "lv2proc"));
    };
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), &[]);
    let [from, to] = ["in.wav", "out.wav"].map(|name| folder.path().join(name));
    wav_one(&from, &[0.5; 100]);
    let done = Command::new(lv2proc)
        .args(["-i", from.to_str().unwrap(), "-o", to.to_str().unwrap(), URI])
        .env("LV2_PATH", format!("{}/lv2:/usr/lib/lv2", folder.path().display()))
        .output()
        .unwrap();
    let text = said_by(&done);
    assert!(text.contains("requires features"), "{text}");
}

#[test]
fn a_host_renders_the_bits_of_render_from_a_preset() {
    let Some(lv2file) = program("lv2file") else {
        return skip(Why::Program("lv2file", "lv2file"));
    };
    let folder = tempfile::tempdir().unwrap();
    let amp = here("../../fixtures/amps/BossWN-nano.nam").canonicalize().unwrap();
    let ir = folder.path().join("cab.wav");
    wav_one(&ir, &[0.5, 0.0, -0.25, 0.125]);
    // One file lies in the bundle, one does not.
    bundle(folder.path(), &[("amp", Path::new("clean.nam")), ("ir", &ir)]);
    fs::copy(&amp, folder.path().join("lv2/quietcores.lv2/clean.nam")).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let x: Vec<f32> = (0..6000).map(|_| random.f32() * 0.2 - 0.1).collect();
    let [from, heard] = ["in.wav", "heard.wav"].map(|name| folder.path().join(name));
    let wanted = rendered_one(folder.path(), &[("amp", &amp), ("ir", &ir)], &x);
    assert!(wanted.iter().any(|y| y.abs() > 0.01));
    let names = [&from, &heard].map(|path| path.to_str().unwrap());
    for block in ["64", "512", "1000"] {
        let words = ["-i", names[0], "-o", names[1], "-b", block, "-P", "test", URI];
        let text = said(folder.path(), &lv2file, &words);
        assert_eq!(samples(&heard), wanted, "{block}: {text}");
    }
}

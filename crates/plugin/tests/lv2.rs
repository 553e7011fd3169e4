//! Hosts of Debian's find the LV2 bundle and play it: the same bits as `render`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_engine::render::{Description, Files, Job, Order, RenderProgress, WavFormat, render};
use quiet_testing::{Why, program, skip};
use quiet_types::{Frames, render::FileOutcome};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const URI: &str = "urn:quietcores:strip";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder with the bundle in it, and a preset that names `files`, relative to the bundle or absolute.
fn bundle(folder: &Path, files: &[(&str, &Path)]) {
    // In a folder of its own: a host takes all that stands beside a bundle for one.
    let to = folder.join("lv2/quietcores.lv2");
    fs::create_dir_all(&to).unwrap();
    let library = std::env::current_exe().unwrap().with_file_name("libquiet_plugin.so");
    fs::copy(library, to.join("quietcores.so")).unwrap();
    let mut manifest = fs::read_to_string(here("quietcores.lv2/manifest.ttl")).unwrap();
    manifest += "<urn:test:preset> a <http://lv2plug.in/ns/ext/presets#Preset> ;\n\
                 lv2:appliesTo <urn:quietcores:strip> ; rdfs:label \"test\" ;\n\
                 rdfs:seeAlso <preset.ttl> .\n";
    fs::write(to.join("manifest.ttl"), manifest).unwrap();
    fs::copy(here("quietcores.lv2/quietcores.ttl"), to.join("quietcores.ttl")).unwrap();
    let state: String = files
        .iter()
        .map(|(key, path)| {
            format!("<urn:quietcores:strip#{key}> \"{}\"^^atom:Path ;\n", path.display())
        })
        .collect();
    let preset = format!(
        "@prefix atom: <http://lv2plug.in/ns/ext/atom#> .\n\
         @prefix state: <http://lv2plug.in/ns/ext/state#> .\n\
         @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n\
         <urn:test:preset> a <http://lv2plug.in/ns/ext/presets#Preset> ;\n\
         <http://lv2plug.in/ns/lv2core#appliesTo> <urn:quietcores:strip> ;\n\
         rdfs:label \"test\" ; state:state [\n{state}] .\n"
    );
    fs::write(to.join("preset.ttl"), preset).unwrap();
}

fn said(folder: &Path, program: &Path, words: &[&str]) -> String {
    let path = format!("{}/lv2:/usr/lib/lv2", folder.display());
    let done = Command::new(program).args(words).env("LV2_PATH", path).output().unwrap();
    let text = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{words:?}: {text:?}");
    text.concat()
}

fn wav(path: &Path, x: &[f32]) {
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 48_000,
        bits_per_sample: 32,
        sample_format: hound::SampleFormat::Float,
    };
    let mut writer = hound::WavWriter::create(path, spec).unwrap();
    x.iter().for_each(|x| writer.write_sample(*x).unwrap());
    writer.finalize().unwrap();
}

fn samples(path: &Path) -> Vec<f32> {
    hound::WavReader::open(path).unwrap().samples::<f32>().map(Result::unwrap).collect()
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

#[test]
fn a_host_renders_the_bits_of_render_from_a_preset() {
    let Some(lv2file) = program("lv2file") else {
        return skip(Why::Program("lv2file", "lv2file"));
    };
    let folder = tempfile::tempdir().unwrap();
    let amp = here("../../fixtures/amps/BossWN-nano.nam").canonicalize().unwrap();
    let ir = folder.path().join("cab.wav");
    wav(&ir, &[0.5, 0.0, -0.25, 0.125]);
    // One file lies in the bundle, one does not.
    bundle(folder.path(), &[("amp", Path::new("clean.nam")), ("ir", &ir)]);
    fs::copy(&amp, folder.path().join("lv2/quietcores.lv2/clean.nam")).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let x: Vec<f32> = (0..6000).map(|_| random.f32() * 0.2 - 0.1).collect();
    let [from, heard, wanted] = ["in.wav", "heard.wav", "out.wav"].map(|n| folder.path().join(n));
    wav(&from, &x);
    let stages = [("amp", amp.to_str().unwrap()), ("ir", ir.to_str().unwrap())];
    let order = Order {
        strip: Description::of_files(&stages).unwrap(),
        files: Files::here(),
        format: WavFormat::Float,
        rate: None,
        channels: None,
        tail: Some(0.0),
        block: Frames(100),
        force: true,
        skip: false,
        threads: 1,
    };
    let job = Job { from: from.clone(), to: wanted.clone() };
    let done = render(&[job], &order, &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
    let wanted = samples(&wanted);
    assert!(wanted.iter().any(|y| y.abs() > 0.01));
    let names = [&from, &heard].map(|path| path.to_str().unwrap());
    for block in ["64", "512", "1000"] {
        let words = ["-i", names[0], "-o", names[1], "-b", block, "-P", "test", URI];
        let text = said(folder.path(), &lv2file, &words);
        assert_eq!(samples(&heard), wanted, "{block}: {text}");
    }
}

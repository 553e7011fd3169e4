//! What the tests with hosts of LV2 share: the bundle in a folder, sounds of one channel, `render`.

use quiet_engine::render::{Description, Files, Job, Order, RenderProgress, WavFormat, render};
use quiet_types::{Frames, render::FileOutcome};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder with the bundle in it, and a preset that names `files`, relative to the bundle or absolute.
pub fn bundle(folder: &Path, files: &[(&str, &Path)]) {
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

/// All that a program has said.
pub fn said_by(done: &Output) -> String {
    [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

pub fn wav_one(path: &Path, x: &[f32]) {
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

pub fn samples(path: &Path) -> Vec<f32> {
    hound::WavReader::open(path).unwrap().samples::<f32>().map(Result::unwrap).collect()
}

/// What `render` makes of `x` with these files, as long as it.
pub fn rendered_one(folder: &Path, files: &[(&str, &Path)], x: &[f32]) -> Vec<f32> {
    let [from, to] = ["in.wav", "out.wav"].map(|name| folder.join(name));
    wav_one(&from, x);
    let stages: Vec<(&str, &str)> =
        files.iter().map(|(kind, path)| (*kind, path.to_str().unwrap())).collect();
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
        halved: false,
    };
    let done = render(&[Job { from, to: to.clone() }], &order, &RenderProgress::default());
    assert_eq!(done[0].outcome, FileOutcome::Done, "{:?}", done[0].error);
    samples(&to)
}

/// Builds the window of the tests (`ui.c`) into the bundle; gives the bundle's folder, where it reads and writes.
#[allow(dead_code, reason = "of the tests with hosts one has a window")]
pub fn window(folder: &Path) -> PathBuf {
    let to = folder.join("lv2/quietcores.lv2");
    let built = std::process::Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([to.join("ui.so"), here("tests/hosted/ui.c")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", said_by(&built));
    let mut manifest = fs::read_to_string(to.join("manifest.ttl")).unwrap();
    manifest += "@prefix ui: <http://lv2plug.in/ns/extensions/ui#> .\n\
                 <urn:quietcores:strip> ui:ui <urn:test:window> .\n\
                 <urn:test:window> a ui:UI ; lv2:binary <ui.so> ;\n\
                 lv2:extensionData ui:idleInterface , ui:showInterface .\n";
    fs::write(to.join("manifest.ttl"), manifest).unwrap();
    to
}

//! `quietcores report`, from the outside.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_judge::example;
use quiet_testing::{Why, skip};
use quiet_types::{Proof, Run};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

fn report(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .arg("report")
        .args(args)
        .current_dir(dir)
        .env("XDG_DATA_HOME", dir.join("data"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A directory with a store that keeps the constructed proof and one run of it.
fn kept() -> (tempfile::TempDir, Proof, Run) {
    let dir = tempfile::tempdir().unwrap();
    let store = quiet_store::Store::at(dir.path().join("data/quietcores"));
    let proof = example::proof();
    let run = Run { id: "20261121T205959Z-wakeup-0001".into(), ..example::run() };
    store.save_run(&run).unwrap();
    // The one that is kept last.
    store.save_proof(&proof, &quiet_report::proof_page(&proof)).unwrap();
    (dir, proof, run)
}

#[test]
fn the_last_proof_becomes_a_page_named_after_its_id() {
    let (dir, proof, run) = kept();
    for name in ["last", &proof.id] {
        let done = report(dir.path(), &[name]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_eq!(text(&done.stdout), format!("{}.html\n", proof.id));
    }
    let page = fs::read_to_string(dir.path().join(format!("{}.html", proof.id))).unwrap();
    assert_eq!(page, quiet_report::proof_page(&proof));

    let done = report(dir.path(), &[&run.id, "-o", "mine.html", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["schema"], "quietcores.report/1");
    assert_eq!(told["path"], "mine.html");
    assert_eq!(told["ids"][0], run.id);
    assert_eq!(told["bytes"], fs::metadata(dir.path().join("mine.html")).unwrap().len());
}

#[test]
fn runs_from_files_share_a_page_and_a_proof_does_not_share_one() {
    let (dir, proof, run) = kept();
    let file = dir.path().join("other.json");
    let other = Run { id: "other".into(), ..run.clone() };
    fs::write(&file, serde_json::to_string(&other).unwrap()).unwrap();
    let done = report(dir.path(), &[&run.id, "other.json", "-o", "both.html"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let page = fs::read_to_string(dir.path().join("both.html")).unwrap();
    assert!(page.contains("<title>2 runs</title>"));

    let done = report(dir.path(), &[&run.id, &proof.id]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("a page holds one proof, or runs and no proof"));
}

#[test]
fn a_foreign_file_is_replaced_only_by_force() {
    let (dir, ..) = kept();
    let path = dir.path().join("precious.html");
    fs::write(&path, "<html>mine</html>").unwrap();
    let done = report(dir.path(), &["last", "-o", "precious.html"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("use --force to replace it"), "{}", text(&done.stderr));
    assert_eq!(fs::read_to_string(&path).unwrap(), "<html>mine</html>");
    assert!(report(dir.path(), &["last", "-o", "precious.html", "--force"]).status.success());
    // Its own page is replaced without being told to.
    assert!(report(dir.path(), &["last", "-o", "precious.html"]).status.success());

    std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("link.html")).unwrap();
    let done = report(dir.path(), &["last", "-o", "link.html"]);
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stdout));
    assert!(!dir.path().join("elsewhere").exists());
}

#[test]
fn what_cannot_be_read_gets_a_sentence_and_leaves_no_page() {
    let (dir, proof, _) = kept();
    let mut torn = serde_json::to_string(&proof).unwrap();
    torn.truncate(torn.len() / 2);
    fs::write(dir.path().join("torn.json"), torn).unwrap();
    fs::write(dir.path().join("machine.json"), r#"{"schema":"quietcores.machine/1"}"#).unwrap();
    let named = Proof { id: "../climb".into(), ..proof };
    fs::write(dir.path().join("climb.json"), serde_json::to_string(&named).unwrap()).unwrap();
    for (name, why) in [
        ("torn.json", "cannot read torn.json: it is cut short at line 1, column"),
        ("machine.json", "cannot use machine.json: it holds quietcores.machine/1"),
        ("climb.json", "cannot name the page after the id `../climb`"),
        ("absent.json", "cannot read absent.json: No such file or directory"),
        ("1999", "cannot find 1999: no such id in"),
    ] {
        let done = report(dir.path(), &[name]);
        assert_eq!(done.status.code(), Some(2), "{name}");
        assert!(text(&done.stderr).contains(why), "{name}: {}", text(&done.stderr));
        assert_eq!(text(&done.stdout), "");
    }
    let pages = fs::read_dir(dir.path()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "html")
    });
    assert_eq!(pages.count(), 0);
}

#[test]
fn help_shows_an_example() {
    let done = report(Path::new("."), &["--help"]);
    assert!(text(&done.stdout).contains("quietcores report last"));
}

/// A browser where there is one: Chromium under one of its names.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|file| file.is_file())
}

/// What a real browser makes of a page in a frame as wide as a small phone; `None` without one.
fn browsed(page: &str) -> Option<serde_json::Value> {
    let Some(browser) = browser() else {
        return skip(Why::Program("chromium", "chromium"));
    };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("page.html"), page).unwrap();
    // A script beside the page looks inside.
    let around = r#"<!DOCTYPE html><iframe id=f src=page.html width=360 height=800></iframe><script>
        onload = () => {
            const page = document.getElementById("f").contentDocument;
            const root = page.documentElement;
            const data = JSON.parse(page.getElementById("data").textContent);
            const charts = [...page.querySelectorAll("svg.chart.narrow")];
            const seen = one => one.getBoundingClientRect().height > 100
                && one.querySelectorAll("path, circle").length > 0
                && [...one.querySelectorAll("path")].every(p => !/NaN|Infinity/.test(p.getAttribute("d")));
            const over = charts.flatMap(one => [...one.querySelectorAll("text")]
                .filter(t => t.getBoundingClientRect().right > one.getBoundingClientRect().right + 1)
                .map(t => t.textContent));
            document.body.textContent = JSON.stringify({
                wide: root.scrollWidth, room: root.clientWidth, images: page.images.length,
                charts: page.querySelectorAll("svg.chart").length,
                empty: charts.filter(one => !seen(one)).length, over,
                link: !page.getElementById("download").hidden, data,
                requests: frames[0].performance.getEntriesByType("resource").length,
            });
        };</script>"#;
    fs::write(dir.path().join("around.html"), around).unwrap();
    let shown = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--allow-file-access-from-files", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", dir.path().join("around.html").display()))
        .output()
        .unwrap();
    let (dom, log) = (text(&shown.stdout), String::from_utf8_lossy(&shown.stderr).into_owned());
    assert!(!log.contains("CONSOLE"), "{log}");
    let body = dom.split_once("<body>").unwrap().1.split_once("</body>").unwrap().0;
    let body = body.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let told: serde_json::Value = serde_json::from_str(body.trim()).expect(&dom);
    assert_eq!(told["wide"], told["room"], "the page scrolls sideways");
    assert_eq!((&told["images"], &told["requests"]), (&0.into(), &0.into()));
    assert_eq!(told["link"], true, "the script did not run");
    assert_eq!(told["empty"], 0, "a chart is not drawn");
    assert_eq!(told["over"], serde_json::json!([]), "texts are cut off");
    Some(told)
}

#[test]
fn a_browser_shows_hostile_names_as_text_fits_a_phone_and_finds_no_error() {
    let mut proof = example::proof();
    proof.host.name = HOSTILE.into();
    proof.question = HOSTILE.into();
    proof.findings[0].title = HOSTILE.into();
    proof.arms[0].wakeup.label = HOSTILE.into();
    let Some(told) = browsed(&quiet_report::proof_page(&proof)) else { return };
    assert_eq!(told["charts"], 10);
    assert_eq!(told["data"]["host"]["name"], HOSTILE);
}

#[test]
fn a_browser_draws_a_campaign_a_history_and_imported_runs_beside_ours() {
    let (mut cells, mut runs) = example::campaign();
    for state in &mut cells {
        state.cell.stress = HOSTILE.into();
    }
    for run in &mut runs {
        run.cell.as_mut().unwrap().stress = HOSTILE.into();
    }
    let it = quiet_judge::campaigned(HOSTILE, cells, &runs, quiet_types::Nanos::ZERO);
    let Some(told) = browsed(&quiet_report::campaign_page(&it, &runs)) else { return };
    assert_eq!((&told["charts"], &told["data"]["name"]), (&8.into(), &HOSTILE.into()));

    let mut lines: Vec<_> = runs.iter().map(quiet_store::line).collect();
    lines.iter_mut().skip(7).for_each(|line| line.kernel = HOSTILE.into());
    let changes = quiet_judge::changes_over_time(&lines);
    let history = quiet_types::history::History { runs: lines, changes, ..Default::default() };
    let told = browsed(&quiet_report::history_page(&history)).unwrap();
    assert_eq!(told["charts"], 2);

    // A result of another tool, imported, on one page with a run of ours.
    let dir = tempfile::tempdir().unwrap();
    let import = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .arg("import")
        .arg(quiet_testing::tree::fixture("results/latmus-vim3l-hectic-200us.txt"))
        .args(["-o", "latmus.json"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", text(&import.stderr));
    fs::write(dir.path().join("ours.json"), serde_json::to_string(&example::run()).unwrap())
        .unwrap();
    let done = report(dir.path(), &["ours.json", "latmus.json", "-o", "both.html"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let told = browsed(&fs::read_to_string(dir.path().join("both.html")).unwrap()).unwrap();
    assert_eq!(told["charts"], 8);
}

#[test]
fn conditions_a_campaign_a_trend_and_markdown() {
    let dir = tempfile::tempdir().unwrap();
    let store = quiet_store::Store::at(dir.path().join("data/quietcores"));
    for run in example::campaign().1 {
        store.save_run(&run).unwrap();
    }
    let done = report(dir.path(), &["campaign=shield", "-o", "c.html", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["ids"].as_array().unwrap().len(), 12);
    let page = fs::read_to_string(dir.path().join("c.html")).unwrap();
    assert!(page.contains("<title>campaign shield</title>"));
    for (args, file, said) in [
        (&["campaign=shield", "--markdown"][..], None, "# Campaign shield"),
        (&["last", "--markdown", "-o", "last.md"], Some("last.md"), "## Wakeup latency"),
        (&["--trend"], Some("history.html"), "<title>history of runs</title>"),
    ] {
        // Twice: a file of ours is replaced.
        let done = report(dir.path(), args);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let done = report(dir.path(), args);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let path = text(&done.stdout);
        assert!(file.is_none_or(|file| file == path.trim()), "{path}");
        let page = fs::read_to_string(dir.path().join(path.trim())).unwrap();
        assert!(page.contains(said), "{page}");
    }
    let done = report(dir.path(), &["kernel=1.*"]);
    assert!(text(&done.stderr).contains("no run is meant by `kernel=1.*`"));
}

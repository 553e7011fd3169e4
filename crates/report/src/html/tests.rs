//! The page as a whole.

use super::*;
use quiet_judge::example;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&";

fn hostile() -> Proof {
    let mut proof = example::proof();
    proof.host.name = HOSTILE.into();
    proof.question = HOSTILE.into();
    proof.sentence = HOSTILE.into();
    proof.machine.processor = HOSTILE.into();
    proof.machine.kernel.boot_parameters.push(HOSTILE.into());
    proof.commands.push(HOSTILE.into());
    proof.findings[0].title = HOSTILE.into();
    proof.figures[0].title = HOSTILE.into();
    proof.figures[0].note = HOSTILE.into();
    proof.arms[0].void = Some(HOSTILE.into());
    proof.arms[0].wakeup.before.files.insert(HOSTILE.into(), HOSTILE.into());
    if let Some(shield) = &mut proof.shield {
        shield.steps[0].what = HOSTILE.into();
        shield.steps[0].old = HOSTILE.into();
    }
    for arm in &mut proof.arms {
        if let Some(stress) = &mut arm.wakeup.stress {
            stress.throughput[0].stressor = HOSTILE.into();
        }
    }
    proof
}

/// The JSON within the page, as a parser of HTML hands it over.
fn data(page: &str) -> &str {
    let begin = page.find(r#"id="data">"#).unwrap() + r#"id="data">"#.len();
    &page[begin..begin + page[begin..].find("</script>").unwrap()]
}

#[test]
fn hostile_names_stay_text() {
    let proof = hostile();
    let mut run = example::run();
    run.label = HOSTILE.into();
    run.host.name = HOSTILE.into();
    for page in [proof_page(&proof), runs_page(&[run.clone()]), runs_page(&[run.clone(), run])] {
        assert!(!page.contains("<img"), "markup came through");
        assert_eq!(page.matches("</script>").count(), 2, "a script was ended early");
        assert_eq!(page.matches("<script").count(), 2);
    }
    let back: Proof = serde_json::from_str(data(&proof_page(&proof))).unwrap();
    assert_eq!(back, proof);
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    for page in [proof_page(&example::proof()), runs_page(&[example::run()])] {
        for lure in ["http:", "https:", "src=", "@import", "url(", "//cdn"] {
            assert!(!page.contains(lure), "{lure}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

/// Every element that is opened is closed in order: void ones aside.
fn check_nesting(page: &str) {
    const VOID: [&str; 2] = ["br", "wbr"];
    let begin = page.find("<body>").unwrap();
    let end = page.find("<script").unwrap();
    let mut open: Vec<&str> = Vec::new();
    for tag in page[begin..end].split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, ["body"]);
}

#[test]
fn the_page_is_well_formed_and_has_its_charts() {
    let page = proof_page(&example::proof());
    check_nesting(&page);
    check_nesting(&proof_page(&hostile()));
    check_nesting(&runs_page(&[example::run(), example::run()]));
    for (form, count) in [("chart wide", 5), ("chart narrow", 5), ("pairs", 6), ("interval", 7)] {
        assert_eq!(page.matches(&format!("<svg class=\"{form}\"")).count(), count, "{form}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "a number is none");
    assert!(page.find(PAGE_MARK).unwrap() < 4000);
}

#[test]
fn a_proof_without_anything_still_makes_a_page() {
    let mut proof = example::proof();
    proof.arms.clear();
    quiet_judge::judge_proof(&proof).into_proof(&mut proof);
    proof.shield = None;
    proof.restored = None;
    check_nesting(&proof_page(&proof));
    check_nesting(&runs_page(&[]));
}

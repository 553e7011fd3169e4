use super::*;
use crate::chain::parse;
use proptest::prelude::*;
use quiet_types::{
    Chain, CpuSet,
    chain::{Choice, IrqSource, Target, User},
};

const NUC: &str = include_str!("../../../../fixtures/recipes/cset-nuc.txt");
const RTIRQ: &str = include_str!("../../../../fixtures/recipes/rtirq.conf");
const TUNED: &str = include_str!("../../../../fixtures/recipes/tuned-realtime-variables.conf");
const CMDLINE: &str = include_str!("../../../../fixtures/recipes/cmdline.txt");

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn chain(text: &str, format: RecipeFormat) -> (Chain, String) {
    let file = import(text, format, "living room").unwrap();
    let chain = parse(&file, "chain.toml", None).unwrap_or_else(|e| panic!("{e}\n{file}"));
    (chain, file)
}

#[test]
fn each_format_is_told_by_its_content() {
    for (text, format) in [
        (NUC, Some(RecipeFormat::Cset)),
        (RTIRQ, Some(RecipeFormat::Rtirq)),
        (TUNED, Some(RecipeFormat::Tuned)),
        (CMDLINE, Some(RecipeFormat::Isolcpus)),
        ("GRUB_CMDLINE_LINUX=\"quiet isolcpus=2\"", Some(RecipeFormat::Isolcpus)),
        ("isolated_cores =\n", Some(RecipeFormat::Tuned)),
        ("T: 0 ( 1234) P:90 I:200 C:  5000 Min:      2\n", None),
        ("root=/dev/sda1 quiet", None),
        ("", None),
    ] {
        assert_eq!(detect(text), format, "{text}");
    }
}

#[test]
fn the_sets_of_the_nuc_become_a_chain_with_rising_priorities() {
    let (chain, file) = chain(NUC, RecipeFormat::Cset);
    assert_eq!(chain.cpus, Choice::These(set("1-3")));
    let found: Vec<(String, Option<u8>, String)> = chain
        .links
        .iter()
        .map(|l| (l.name.clone(), l.priority, l.cpus.as_ref().unwrap().to_string()))
        .collect();
    let wanted = [
        ("network eth0", 55, "2"),
        ("mpd", 75, "2"),
        ("camilladsp", 80, "3"),
        ("xhci_hcd", 85, "1"),
    ];
    let wanted: Vec<_> =
        wanted.iter().map(|(n, p, c)| (n.to_string(), Some(*p), c.to_string())).collect();
    assert_eq!(found, wanted, "{file}");
    assert_eq!(chain.links[0].target, Target::Irq(IrqSource::Net("eth0".into())));
    assert_eq!(chain.links[3].target, Target::Irq(IrqSource::Action("xhci_hcd".into())));
    let Target::Process { comm, threads, owner, .. } = &chain.links[1].target else { panic!() };
    assert_eq!(comm, "mpd");
    assert_eq!(threads.join(" "), "mpd io rtio player decoder output");
    assert_eq!(owner.users, [User::Name("root".into())]);
    let Target::Process { threads, .. } = &chain.links[2].target else { panic!() };
    assert_eq!(threads.join(" "), "camilladsp AlsaPlayback AlsaCapture");
    assert!(file.contains("Set system (CPUs 0, 31 tasks)"), "{file}");
}

#[test]
fn the_imported_chain_can_be_planned_and_checked() {
    let (chain, _) = chain(NUC, RecipeFormat::Cset);
    let mut machine = crate::check::tests::good::machine();
    machine.tasks.iter_mut().for_each(|task| task.uid = 0);
    machine.users.insert("root".into(), 0);
    let plan = crate::plan(&machine, &chain).unwrap();
    assert_eq!(plan.shield.cpus, set("1-3"));
    assert_eq!(plan.shield.housekeeping, set("0"));
    let found = crate::check::check(&machine, Some(&chain));
    // The good machine runs no thread that is called AlsaPlayback; all else is as it was there.
    assert!(found.iter().all(|f| f.id != "link.absent"), "{found:#?}");
}

#[test]
fn what_people_write_around_a_listing_does_no_harm() {
    let text = format!(
        "We had the following, which worked well for 3 years:\nCode:\n{NUC}\nThe server was a 4 \
         core one, it ran 5 DSPs.\n"
    );
    let (with, _) = chain(&text, RecipeFormat::Cset);
    assert_eq!(with, chain(NUC, RecipeFormat::Cset).0);
}

#[test]
fn prose_behind_a_listing_is_prose_and_a_torn_row_is_said() {
    let listing = "cset:\nName CPUs-X MEMs-X Tasks Subs Path\n--- --- - --- - --- --- ---\n\
                   root 0-3 y 0 y 207 4 /\nplayer 2 y 0 n 7 0 /player\n";
    let prose = format!("{listing}The priorities rise towards the card, as they should.\n");
    let (_, text) = chain(&prose, RecipeFormat::Cset);
    assert!(!text.contains("Not understood"), "{text}");
    let torn = format!("{listing}server 3 y 0 n /server\n");
    let (_, text) = chain(&torn, RecipeFormat::Cset);
    assert!(text.contains("Not understood, and left out: server 3 y 0 n /server"), "{text}");
}

#[test]
fn a_kernel_thread_in_a_set_is_said_and_no_link() {
    let text = "cset: \"audio\" cpuset of CPUSPEC(1) with 1 task running\n\
                USER PID PPID SPPr TASK NAME\nroot 40 2 Soth [kcompactd0]\n";
    let (chain, file) = chain(text, RecipeFormat::Cset);
    assert!(chain.links.is_empty());
    assert!(file.contains("kcompactd0"), "{file}");
}

#[test]
fn priorities_that_do_not_rise_are_said_and_left_to_the_owner() {
    let text = "cset: \"a\" cpuset of CPUSPEC(1) with 2 tasks running\n\
                USER PID PPID SPPr TASK NAME\n\
                root 500 1 Sf70 [one]\nroot 600 2000 Sf70 [two]\n";
    let (chain, file) = chain(text, RecipeFormat::Cset);
    let found: Vec<Option<u8>> = chain.links.iter().map(|l| l.priority).collect();
    assert_eq!(found, [Some(70), None]);
    assert!(file.contains("its priority was 70"), "{file}");
}

#[test]
fn a_command_line_gives_its_cpus_and_says_what_stays_behind() {
    let (chain, file) = chain(CMDLINE, RecipeFormat::Isolcpus);
    assert_eq!(chain.cpus, Choice::These(set("2-3")));
    assert!(chain.links.is_empty());
    for word in [
        "nohz_full=2,3",
        "irqaffinity=0,1",
        "rcu_nocbs=2,3",
        "threadirqs",
        "kthread_cpus=0,1",
        "mitigations=off",
        "managed_irq",
        "BOOT_IMAGE root ro quiet",
    ] {
        assert!(file.contains(word), "{word} is not in\n{file}");
    }
    assert!(!file.contains("29631686"), "values that are not about latency stay at home:\n{file}");
}

#[test]
fn a_command_line_without_isolcpus_leaves_the_choice_to_the_plan() {
    let (chain, file) = chain("quiet irqaffinity=0-1", RecipeFormat::Isolcpus);
    assert_eq!(chain.cpus, Choice::Auto);
    assert!(file.contains("the plan chooses"), "{file}");
}

#[test]
fn rtirq_becomes_the_priority_of_the_card() {
    let (chain, file) = chain(RTIRQ, RecipeFormat::Rtirq);
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.links[0].priority, Some(90));
    assert_eq!(chain.links[0].target, Target::Irq(IrqSource::Card("card0".into())));
    for word in ["snd 90, usb 85", "i8042 had priority 80", "RTIRQ_NON_THREADED=rtc snd"] {
        assert!(file.contains(word), "{word} is not in\n{file}");
    }
}

#[test]
fn tuned_variables_give_the_cpus() {
    let (chain, file) = chain(TUNED, RecipeFormat::Tuned);
    assert_eq!(chain.cpus, Choice::These(set("2-3")));
    for word in ["isolate_managed_irq=Y", "netdev_queue_count=2"] {
        assert!(file.contains(word), "{word} is not in\n{file}");
    }
    let computed = "isolated_cores=${f:calc_isolated_cores:2}\n";
    let (chain, file) = self::chain(computed, RecipeFormat::Tuned);
    assert_eq!(chain.cpus, Choice::Auto);
    assert!(file.contains("calc_isolated_cores"), "{file}");
}

#[test]
fn nonsense_is_answered_with_its_line() {
    for (text, format, said) in [
        ("", RecipeFormat::Cset, "no listing"),
        (
            "Name CPUs-X MEMs-X Tasks Subs Path\na 3-1 y 0 n 1 0 /a\n",
            RecipeFormat::Cset,
            "line 2: set a",
        ),
        ("quiet", RecipeFormat::Isolcpus, "nothing"),
        ("quiet\nisolcpus=managed_irq", RecipeFormat::Isolcpus, "line 2: `isolcpus=managed_irq`"),
        ("RTIRQ_PRIO_HIGH=high\n", RecipeFormat::Rtirq, "line 1: RTIRQ_PRIO_HIGH is `high`"),
        ("RTIRQ_PRIO_HIGH=90\n", RecipeFormat::Rtirq, "RTIRQ_NAME_LIST"),
        ("isolated_cores=2;3\n", RecipeFormat::Tuned, "line 1: isolated_cores"),
        ("[variables]\n", RecipeFormat::Tuned, "none of"),
    ] {
        let error = import(text, format, "x").unwrap_err().to_string();
        let error = error.replace("no parameter of it", "nothing");
        assert!(error.contains(said), "{said} is not in {error}");
    }
}

#[test]
fn names_of_any_kind_give_a_file_that_can_be_read() {
    for name in ["", "a \"b\" \\c", "\u{1b}[31m", &"x".repeat(200), "日本語"] {
        let file = import(TUNED, RecipeFormat::Tuned, name).unwrap();
        parse(&file, "chain.toml", None).unwrap_or_else(|e| panic!("{e}\n{file}"));
    }
}

proptest! {
    #[test]
    fn any_text_is_answered_and_what_is_written_can_be_read(
        head in prop::sample::select(vec![
            "", "cset: \"a\" cpuset\nUSER PID PPID\n", "Name CPUs-X\n", "isolcpus=",
            "RTIRQ_NAME_LIST=", "isolated_cores=",
        ]),
        text in "(?s)[ -~\n\u{e9}\u{1b}]{0,120}",
    ) {
        let text = format!("{head}{text}");
        detect(&text);
        for format in [RecipeFormat::Cset, RecipeFormat::Isolcpus, RecipeFormat::Rtirq, RecipeFormat::Tuned] {
            if let Ok(file) = import(&text, format, &text) {
                let chain = parse(&file, "chain.toml", None);
                prop_assert!(chain.is_ok(), "{}\n{}", chain.unwrap_err(), file);
            }
        }
    }

    #[test]
    fn rows_of_cset_become_links_that_can_be_read(
        rows in prop::collection::vec(
            (
                1u32..3,
                100u32..200,
                prop::sample::select(vec!["Sr55", "Soth", "Sf99", "R?", "Sr0"]),
                prop::sample::select(vec![
                    "[mpd]", "[irq/9-eth0]", "[irq/7-xhci_hc]", "x\\y", "\"", "[irq/3-snd_hda]",
                ]),
            ),
            0..12,
        ),
    ) {
        let mut text = String::from("cset: \"a\" cpuset\nUSER PID PPID SPPr TASK NAME\n");
        for (parent, pid, state, name) in rows {
            text += &format!("root {pid} {parent} {state} {name}\n");
        }
        let file = import(&text, RecipeFormat::Cset, "x").unwrap_or_default();
        prop_assert!(file.is_empty() || parse(&file, "c", None).is_ok(), "{}", file);
    }
}

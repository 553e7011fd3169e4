//! Links of chains on a small machine.

use super::*;
use crate::{astray, check::tests::good, plan};
use quiet_types::{
    Plan, Severity,
    chain::{Choice, User},
    machine::{Policy, Scheduling},
    plan::Action,
};

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A thread `tid` of process `pid` that nobody has placed.
fn thread(pid: u32, tid: u32, comm: &str, uid: u32) -> Task {
    let cgroup = "/system.slice/x.service".parse().ok();
    Task { pid, tid, uid, cgroup, ..good::task(tid, comm, "0-3", Policy::Other, 0) }
}

/// The well made machine with other programs, and a chain of network, mpd and a card for it.
fn setup(threads: &[&str], users: Vec<User>, programs: Vec<Task>) -> (Machine, Chain) {
    let (mut machine, mut chain) = (good::machine(), good::chain());
    machine.tasks.retain(|task| task.kernel.is_some());
    machine.tasks.extend(programs);
    machine.users.insert("mpd".into(), 107);
    chain.links.remove(2);
    chain.links[1].target = Target::Process {
        comm: "mpd".into(),
        threads: threads.iter().map(|name| (*name).to_owned()).collect(),
        owner: Owner { users, ..Owner::default() },
        pipewire: None,
    };
    (machine, chain)
}

fn of_mpd() -> Vec<User> {
    vec![User::Name("mpd".into())]
}

/// TIDs of the user threads that steps touch, each once.
fn touched(plan: &Plan) -> Vec<u32> {
    let mut tids: Vec<u32> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Pin { thread, .. }
            | Action::Enter { thread, .. }
            | Action::Schedule { thread, .. } => Some(thread.tid),
            _ => None,
        })
        .filter(|tid| *tid >= 400)
        .collect();
    tids.sort_unstable();
    tids.dedup();
    tids
}

fn ids(findings: &[Finding], at_least: Severity) -> Vec<&str> {
    let known = |id: &str| {
        id.starts_with("plan.link") || id.starts_with("plan.thread") || id.starts_with("plan.order")
    };
    findings
        .iter()
        .filter(|f| f.severity >= at_least && known(&f.id))
        .map(|f| f.id.as_str())
        .collect()
}

#[test]
fn a_strangers_program_of_the_links_name_is_left_alone() {
    let programs = vec![
        thread(812, 812, "mpd", 107),
        thread(900, 900, "mpd", 65534),
        thread(900, 901, "io", 65534),
    ];
    let (machine, chain) = setup(&[], of_mpd(), programs.clone());
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(touched(&made), [812]);
    let stranger = made.findings.iter().find(|f| f.id == "plan.link-stranger").unwrap();
    assert!(stranger.evidence.contains("process 900 of user 65534"), "{stranger:?}");
    // Nobody said whose: not the first one who comes, and it is said what to write.
    let (machine, chain) = setup(&[], Vec::new(), programs);
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(touched(&made), [0u32; 0]);
    let whose = made.findings.iter().find(|f| f.id == "plan.link-whose").unwrap();
    assert_eq!(whose.severity, Severity::Problem);
    assert!(whose.remedy.contains("`user = \"mpd\"` or `user = 65534`"), "{whose:?}");
    // Root's is the link where nothing is said, whoever else is there.
    let programs = vec![thread(812, 812, "mpd", 0), thread(900, 900, "mpd", 107)];
    let (machine, chain) = setup(&[], Vec::new(), programs);
    assert_eq!(touched(&plan(&machine, &chain).unwrap()), [812]);
}

#[test]
fn only_the_kernels_own_threads_serve_an_interrupt() {
    let mut fake = thread(900, 900, "irq/124-xhci_hc", 65534);
    fake.allowed = set("0");
    let (machine, mut chain) = setup(&[], of_mpd(), vec![fake]);
    chain.links.remove(1);
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(touched(&made), [0u32; 0]);
    assert_eq!(astray(&machine, &made.links, &made.shield), []);
}

#[test]
fn threads_of_a_newer_mpd_are_found_by_the_names_of_an_older_one() {
    let names = ["mpd", "io", "rtio", "player", "decoder:ffmpeg", "output:hda"];
    let programs = names.iter().zip(812..).map(|(name, tid)| thread(812, tid, name, 107)).collect();
    let lists = ["mpd", "io", "rtio", "player", "decoder", "output"];
    let (machine, chain) = setup(&lists, of_mpd(), programs);
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(touched(&made), (812..818).collect::<Vec<_>>());
    assert_eq!(ids(&made.findings, Severity::Note), [""; 0]);
}

#[test]
fn a_name_that_is_no_threads_and_a_priority_out_of_order_are_findings() {
    let mut output = thread(812, 814, "output:hda", 107);
    output.scheduling = Scheduling { policy: Policy::Fifo, priority: 40, nice: 0 };
    let programs = vec![thread(812, 812, "mpd", 107), thread(812, 813, "decoder", 107), output];
    let (machine, chain) = setup(&["mpd", "decodr", "outputs"], of_mpd(), programs);
    let made = plan(&machine, &chain).unwrap();
    let wanted = ["plan.thread-absent", "plan.order-broken"];
    assert_eq!(ids(&made.findings, Severity::Warning), wanted);
    let absent = made.findings.iter().find(|f| f.id == wanted[0]).unwrap();
    assert!(absent.title.contains("`decodr`, `outputs`"), "{absent:?}");
    let order = made.findings.iter().find(|f| f.id == wanted[1]).unwrap();
    assert!(
        order.evidence.contains("thread 814 (output:hda) FIFO 40; link `network` has 55"),
        "{order:?}"
    );
    // What is not born yet is no fault, and nobody's thread is out of its place.
    let (machine, chain) = setup(&["mpd", "decoder"], of_mpd(), vec![thread(812, 812, "mpd", 107)]);
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(ids(&made.findings, Severity::Warning), [""; 0]);
    assert_eq!(ids(&made.findings, Severity::Note), ["plan.thread-absent"]);
}

#[test]
fn a_process_enters_by_its_first_thread_though_no_list_names_it() {
    let programs = vec![thread(812, 812, "mpd", 107), thread(812, 813, "output", 107)];
    let (machine, chain) = setup(&["output"], of_mpd(), programs);
    let made = plan(&machine, &chain).unwrap();
    let entered = made
        .steps
        .iter()
        .any(|step| matches!(&step.action, Action::Enter { thread, .. } if thread.tid == 812));
    assert!(entered);
    assert_eq!(ids(&made.findings, Severity::Note), ["plan.threads-unlisted"]);
}

#[test]
fn a_thread_is_one_links_a_list_before_all_the_rest() {
    let programs = vec![
        thread(812, 812, "mpd", 107),
        thread(812, 813, "output:a", 107),
        thread(812, 814, "output:b", 107),
    ];
    let (machine, mut chain) = setup(&[], of_mpd(), programs);
    let mut second = chain.links[1].clone();
    (second.name, second.cpus, second.priority) = ("converter".into(), Some(set("3")), Some(78));
    let Target::Process { threads, .. } = &mut second.target else { panic!() };
    *threads = vec!["output:b".into()];
    let mut third = second.clone();
    (third.name, third.priority) = ("again".into(), Some(79));
    chain.links.insert(2, second);
    let made = plan(&machine, &chain).unwrap();
    let on = |made: &Plan, tid| -> Vec<String> {
        let pinned = made.steps.iter().filter_map(|step| match &step.action {
            Action::Pin { thread, cpus } if thread.tid == tid => Some(cpus.to_string()),
            _ => None,
        });
        pinned.collect()
    };
    assert_eq!((on(&made, 813), on(&made, 814)), (vec!["2".to_owned()], vec!["3".to_owned()]));
    chain.links.insert(3, third);
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(on(&made, 814), ["3"]);
    assert_eq!(ids(&made.findings, Severity::Warning), ["plan.thread-twice"]);
}

#[test]
fn a_deadline_thread_keeps_its_budget_and_is_told_of() {
    let mut deadline = thread(812, 813, "output", 107);
    deadline.scheduling = Scheduling { policy: Policy::Deadline, priority: 0, nice: 0 };
    let programs = vec![thread(812, 812, "mpd", 107), deadline];
    let (machine, chain) = setup(&[], of_mpd(), programs);
    let made = plan(&machine, &chain).unwrap();
    assert_eq!(touched(&made), [812]);
    assert_eq!(ids(&made.findings, Severity::Warning), ["plan.link-deadline"]);
}

/// The machine as a plan leaves it.
fn placed(mut machine: Machine, made: &Plan) -> Machine {
    for step in &made.steps {
        let find = |tid: u32| move |task: &&mut Task| task.tid == tid;
        match &step.action {
            Action::Pin { thread, cpus } => {
                machine.tasks.iter_mut().find(find(thread.tid)).unwrap().allowed = cpus.clone();
            }
            Action::Schedule { thread, to } => {
                machine.tasks.iter_mut().find(find(thread.tid)).unwrap().scheduling = *to;
            }
            Action::Enter { thread, .. } => {
                machine.tasks.iter_mut().find(find(thread.tid)).unwrap().cgroup =
                    "/quietcores".parse().ok();
            }
            Action::Irq { number, cpus, .. } => {
                machine.irqs.iter_mut().find(|irq| irq.number == *number).unwrap().requested =
                    Some(cpus.clone());
            }
            _ => {}
        }
    }
    machine
}

#[test]
fn a_chain_that_is_not_where_it_should_be_is_told_link_by_link() {
    let programs = vec![thread(812, 812, "mpd", 107)];
    let (machine, chain) = setup(&[], of_mpd(), programs);
    let made = plan(&machine, &chain).unwrap();
    let up = placed(machine, &made);
    let look = |machine: &Machine| -> Vec<String> {
        let found = astray(machine, &made.links, &made.shield);
        found.iter().map(|f| format!("{} {}", f.id, f.evidence)).collect()
    };
    assert_eq!(look(&up), [""; 0]);
    // Restarted: outside, on other CPUs, an ordinary process.
    let mut restarted = up.clone();
    restarted.tasks.retain(|task| task.tid != 812);
    restarted.tasks.push(thread(950, 950, "mpd", 107));
    assert_eq!(
        look(&restarted),
        ["chain.astray thread 950 (mpd) outside of the shield, on CPU 0-3, OTHER"]
    );
    // A stranger of its name is not it.
    let mut gone = up.clone();
    gone.tasks.retain(|task| task.tid != 812);
    assert_eq!(look(&gone), ["plan.link-absent no process is called `mpd`"]);
    gone.tasks.push(thread(950, 950, "mpd", 65534));
    assert!(look(&gone)[0].starts_with("plan.link-whose process 950 of user 65534"));
    // One thing each.
    let mut moved = up.clone();
    moved.tasks.iter_mut().find(|task| task.tid == 812).unwrap().allowed = set("3");
    assert_eq!(look(&moved), ["chain.astray thread 812 (mpd) on CPU 3"]);
    let mut rerouted = up.clone();
    rerouted.irqs.iter_mut().find(|irq| irq.number == 124).unwrap().requested = Some(set("0"));
    assert_eq!(look(&rerouted), ["chain.astray IRQ 124 goes to CPU 0"]);
    rerouted.irqs.iter_mut().find(|irq| irq.number == 124).unwrap().immovable =
        Some("managed".into());
    assert_eq!(look(&rerouted), [""; 0]);
    let mut lowered = up;
    lowered
        .tasks
        .iter_mut()
        .find(|task| task.comm == "irq/124-xhci_hc")
        .unwrap()
        .scheduling
        .priority = 50;
    assert_eq!(look(&lowered), ["chain.astray thread 87 (irq/124-xhci_hc) FIFO 50"]);
}

#[test]
fn auto_takes_a_core_for_each_process_and_one_for_the_output() {
    let (mut machine, mut chain) = (good::machine(), good::chain());
    machine.cgroups = Default::default();
    for link in &mut chain.links {
        link.cpus = None;
    }
    let made = |machine: &Machine, chain: &Chain| {
        plan(machine, chain).map(|plan| {
            let links: Vec<String> =
                plan.links.iter().map(|link| link.cpus.as_ref().unwrap().to_string()).collect();
            (plan.shield.cpus.to_string(), links.join(" "))
        })
    };
    let pair = |cpus: &str, links: &str| Ok((cpus.to_owned(), links.to_owned()));
    chain.cpus = Choice::Auto;
    // The network is served where the player is.
    assert_eq!(made(&machine, &chain), pair("1-3", "1 1 2 3"));
    chain.cpus = Choice::Cores(2);
    assert_eq!(made(&machine, &chain), pair("2-3", "2 2 3 2"));
    chain.cpus = Choice::Cores(4);
    assert!(made(&machine, &chain).unwrap_err().to_string().contains("auto:3 at most"));
    // A watch says which CPUs, and comes to the same.
    chain.cpus = Choice::These(set("1-3"));
    assert_eq!(made(&machine, &chain), pair("1-3", "1 1 2 3"));
    // Two threads a core: a core each, siblings only after that; never the last core.
    for cpu in &mut machine.cpus {
        cpu.siblings = set(if cpu.id.0 < 2 { "0-1" } else { "2-3" });
    }
    chain.cpus = Choice::Auto;
    assert_eq!(made(&machine, &chain), pair("2-3", "2 2 3 2"));
    // Without links one core, as ever.
    assert_eq!(made(&machine, &Chain::default()).unwrap().0, "2-3");
    // What cannot be moved stays, and the others go elsewhere.
    machine.cpus.iter_mut().for_each(|cpu| cpu.siblings = [cpu.id].into_iter().collect());
    machine.irqs.iter_mut().find(|irq| irq.number == 124).unwrap().immovable =
        Some("managed".into());
    assert_eq!(made(&machine, &chain), pair("1-3", "2 2 3 1"));
    // CPUs of a process are those of what feeds it.
    chain.cpus = Choice::These(set("1-3"));
    chain.links[1].cpus = Some(set("3"));
    assert_eq!(made(&machine, &chain).unwrap().1, "3 3 2 1");
}

#[test]
fn groups_below_services_and_scopes_are_another_managers() {
    for (path, unit) in [
        ("/user.slice/user-1.slice/user@1.service/app.slice/p.service", Some("user@1.service")),
        ("/machine.slice/docker-ab.scope/init.scope", Some("docker-ab.scope")),
        ("/system.slice/box.service/payload", Some("box.service")),
        ("/system.slice/mpd.service", None),
        ("/user.slice/user-1.slice/session-2.scope", None),
        ("/", None),
    ] {
        assert_eq!(manager(&path.parse().unwrap()), unit, "{path}");
    }
}

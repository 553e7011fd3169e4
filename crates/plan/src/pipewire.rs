//! Files that set PipeWire's data loops up, from 1.2 on. Threads of loops that run are placed one by one on every version; the files are
//! for those that are started later.

use crate::{Mode, links::Found, note, owner, say, steps::List};
use quiet_types::{
    CpuSet, Finding,
    chain::{PipeWire, Target},
    machine::{PipeWireProcess, PipeWireVersion, Task},
    plan::{Action, Need, UserUnit},
    printable,
};
use std::collections::BTreeMap;

/// The server reads these.
const SERVER: &str = "/etc/pipewire/pipewire.conf.d/90-quietcores.conf";
/// What plays for programs of PulseAudio's.
const PULSE: &str = "/etc/pipewire/pipewire-pulse.conf.d/90-quietcores.conf";
/// Programs, each by the library that it speaks through.
const CLIENTS: [&str; 2] = [
    "/etc/pipewire/client.conf.d/90-quietcores.conf",
    "/etc/pipewire/jack.conf.d/90-quietcores.conf",
];
/// The longest name of a user or program that is written into a file.
const LONGEST: usize = 64;

/// What is to stand in one file.
#[derive(Default)]
struct Content {
    rules: Vec<String>,
    restart: Vec<UserUnit>,
    links: Vec<String>,
}

impl List<'_> {
    /// The files of all links that are PipeWire's: each file is written once, with a rule for each of them.
    pub fn pipewire(&mut self, links: &[Found<'_>]) {
        let mut files: BTreeMap<&str, Content> = BTreeMap::new();
        for link in links {
            let Target::Process { comm, threads, pipewire: Some(part), .. } = link.target else {
                continue;
            };
            // Names of one's own belong to loops that a file of one's own makes.
            if threads.as_slice() != [PipeWire::LOOPS] {
                continue;
            }
            let is_pulse = comm == PipeWire::PULSE;
            let paths: &[&str] = match part {
                PipeWire::Server => &[SERVER],
                PipeWire::Client if is_pulse => &[PULSE],
                PipeWire::Client => &CLIENTS,
            };
            for first in &link.firsts {
                let Some(rule) = self.rule(link, first, *part == PipeWire::Client && !is_pulse)
                else {
                    continue;
                };
                for path in paths {
                    let content = files.entry(path).or_default();
                    if !content.rules.contains(&rule) {
                        content.rules.push(rule.clone());
                        content.links.push(printable(link.name, 60));
                    }
                }
                let unit = format!("{comm}.service");
                if *part == PipeWire::Server || is_pulse {
                    let content = files.entry(paths[0]).or_default();
                    if owner::user_unit(first) == Some(unit.as_str()) {
                        let unit = UserUnit { uid: first.uid, unit };
                        if !content.restart.contains(&unit) {
                            content.restart.push(unit);
                        }
                    } else if !first.cgroup.as_ref().is_some_and(crate::is_ours) {
                        self.findings.push(by_hand(link, first));
                    }
                }
            }
        }
        for (path, content) in files {
            let text = text(&content.rules);
            let of = content.links.join("`, `");
            self.push(
                Need::BestEffort,
                Action::DropIn { path: path.to_owned(), text, restart: content.restart },
                None,
                format!("link `{of}`: its data loop has its CPUs and priority whenever it is started anew"),
            );
        }
    }

    /// Whether the loops of a link can poll: one CPU, a version that reads files, and our plugin.
    fn polls(&self, link: &Found<'_>) -> bool {
        let Target::Process { threads, pipewire: Some(_), .. } = link.target else { return false };
        let of = |pid: u32| self.machine.pipewire.iter().find(|one| one.pid == pid);
        let can = |one: &PipeWireProcess| one.polls && one.version >= PipeWireVersion::DATA_LOOPS;
        self.mode == Mode::NeverSleepingCore
            && link.cpus.len() == 1
            && threads.as_slice() == [PipeWire::LOOPS]
            && link.firsts.iter().any(|first| of(first.pid).is_some_and(can))
    }

    /// The CPUs on which loops are to poll. None where whole processes enter the shield and nothing of it would be left for their other
    /// threads.
    pub fn polled_by(&self, links: &[Found<'_>]) -> CpuSet {
        let polling = links.iter().filter(|link| self.polls(link));
        let cpus = polling.fold(CpuSet::new(), |all, link| all.union(&link.cpus));
        let whole = self.shield.entry.as_ref().is_some_and(|entry| entry.whole_process);
        if whole && self.shield.cpus.is_subset(&cpus) { CpuSet::new() } else { cpus }
    }

    /// What a file says of the data loop of one process; `None`, with a note, where nothing can be said of it.
    fn rule(&mut self, link: &Found<'_>, first: &Task, by_program: bool) -> Option<String> {
        let known = self.machine.pipewire.iter().find(|one| one.pid == first.pid);
        match known.map(|one| one.version) {
            Some(version) if version >= PipeWireVersion::DATA_LOOPS => {}
            version => {
                let here = self.on.threads(&[first]);
                if here.iter().any(|task| owner::is_thread(PipeWire::LOOPS, &task.comm)) {
                    self.findings.push(by_thread(link, first, version));
                }
                return None;
            }
        }
        let user = owner::name_of(self.machine, first.uid).filter(|name| is_plain(name))?;
        let mut of = format!("application.process.user = \"{user}\"");
        if by_program {
            let exe = first.exe.as_deref()?;
            let program = exe.strip_suffix(" (deleted)").unwrap_or(exe).rsplit('/').next()?;
            if !is_plain(program) {
                return None;
            }
            of += &format!(" application.process.binary = \"{program}\"");
        }
        let cpus: Vec<String> = link.cpus.iter().map(|cpu| cpu.to_string()).collect();
        let priority = link.priority.map(|priority| format!("loop.rt-prio = {priority} "));
        let polls = self.polls(link);
        let system = (polls && link.cpus.is_subset(&self.polled))
            .then(|| format!("library.name.system = {} ", PipeWireProcess::POLLING));
        if self.mode == Mode::NeverSleepingCore && system.is_none() {
            self.findings.push(asleep(link, first, polls));
        }
        Some(format!(
            "    {{ matches = [ {{ {of} }} ]\n      actions = {{ update-props = {{ context.data-loops = [\n          {{ \
             {}loop.class = [ data.rt audio.rt ] {}thread.name = data-loop.0 thread.affinity = [ {} ] }}\n      ] }} }}\n    }}\n",
            system.unwrap_or_default(),
            priority.unwrap_or_default(),
            cpus.join(" ")
        ))
    }
}

/// The whole file.
///
/// # Source
/// `setup_data_loops` of PipeWire's context.c: loops are read from the properties of a context, which rules may update; so nobody
/// else's are touched, though all users read the same file. The description of pipewire.conf(5) shows them outside of the properties,
/// where they are passed over.
fn text(rules: &[String]) -> String {
    format!(
        "# Written by `quietcores apply`, taken away by `quietcores revert`.\ncontext.properties.rules = [\n{}]\n",
        rules.concat()
    )
}

/// Whether a name means itself between quotes: `~` and `!` at the beginning mean more to PipeWire.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    !name.is_empty() && name.len() <= LONGEST && name.chars().all(plain)
}

fn by_hand(link: &Found<'_>, first: &Task) -> Finding {
    note(
        "plan.pipewire-restart",
        format!("link `{}` is started anew by its owner, not by systemd", printable(link.name, 60)),
    )
    .evidence(format!("process {} is no service of its user's manager", first.pid))
    .effect(format!(
        "its data loop is on {} now; what the file says counts from its next start",
        say(&link.cpus)
    ))
    .remedy("none is needed; `quietcores watch` places what is started anew")
}

fn asleep(link: &Found<'_>, first: &Task, polls: bool) -> Finding {
    let name = printable(link.name, 60);
    let title = format!("the data loop of link `{name}` sleeps between periods");
    let (evidence, remedy) = if polls {
        (
            format!(
                "the other threads of process {} would have no CPU left in the shield",
                first.pid
            ),
            "give the shield one CPU more than loops that poll",
        )
    } else if link.cpus.len() != 1 {
        (format!("it has {}", say(&link.cpus)), "give the link one CPU")
    } else {
        (
            format!("PipeWire in process {} has no plugin {}", first.pid, PipeWireProcess::POLLING),
            "install the package quietcores-plugins, then apply again",
        )
    };
    note("plan.pipewire-asleep", title)
        .evidence(evidence)
        .effect("each period pays a wake-up, although the chain's mode is never-sleep")
        .remedy(remedy)
}

fn by_thread(link: &Found<'_>, first: &Task, version: Option<PipeWireVersion>) -> Finding {
    let name = printable(link.name, 60);
    match version {
        Some(version) => note(
            "plan.pipewire-by-thread",
            format!("data loops of link `{name}` are placed thread by thread: PipeWire {version} has no settings for them"),
        )
        .evidence(format!("process {} runs PipeWire {version}; {} is the first that has them", first.pid, PipeWireVersion::DATA_LOOPS)),
        None => note(
            "plan.pipewire-by-thread",
            format!("data loops of link `{name}` are placed thread by thread: its PipeWire's version cannot be read"),
        )
        .evidence(format!("/proc/{}/maps names no library of PipeWire's, or is not readable", first.pid)),
    }
    .effect("a loop that is started anew begins without its CPU and priority")
    .remedy("`quietcores watch` places what is started anew")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check::tests::good, plan};
    use quiet_types::{
        Chain, Machine, Plan,
        chain::{Choice, Link, Owner, User},
        machine::Policy,
        plan::Step,
    };

    const GROUP: &str =
        "/user.slice/user-1000.slice/user@1000.service/session.slice/pipewire.service";

    fn link(name: &str, comm: &str, part: PipeWire, cpus: &str, priority: Option<u8>) -> Link {
        Link {
            name: name.into(),
            target: Target::Process {
                comm: comm.into(),
                threads: vec![PipeWire::LOOPS.into()],
                owner: Owner { users: vec![User::Name("ann".into())], ..Owner::default() },
                pipewire: Some(part),
            },
            cpus: Some(good::set(cpus)),
            priority,
        }
    }

    /// A process with a data loop.
    fn process(machine: &mut Machine, pid: u32, comm: &str, exe: &str, group: &str, number: u32) {
        let task = |tid, comm: &str| Task {
            pid,
            uid: 1000,
            cgroup: group.parse().ok(),
            ..good::task(tid, comm, "0-3", Policy::Other, 0)
        };
        machine.tasks.push(Task { exe: Some(exe.into()), ..task(pid, comm) });
        machine.tasks.push(task(pid + 1, "data-loop.0"));
        let version =
            PipeWireVersion { major: number / 1000, minor: number / 100 % 10, micro: number % 100 };
        machine.pipewire.push(PipeWireProcess { pid, version, polls: false });
    }

    fn made(machine: &Machine, links: Vec<Link>) -> Plan {
        let chain = Chain { cpus: Choice::These(good::set("1-3")), links, ..Chain::default() };
        plan(machine, &chain).unwrap()
    }

    fn files(plan: &Plan) -> Vec<(&str, &str, &[UserUnit])> {
        fn drop_in(step: &Step) -> Option<(&str, &str, &[UserUnit])> {
            match &step.action {
                Action::DropIn { path, text, restart } => Some((path, text, restart)),
                _ => None,
            }
        }
        plan.steps.iter().filter_map(drop_in).collect()
    }

    fn machine() -> Machine {
        let mut machine = good::machine();
        machine.tasks.retain(|task| task.kernel.is_some());
        machine.users.insert("ann".into(), 1000);
        machine
    }

    fn pins(plan: &Plan) -> Vec<u32> {
        let pin = |action: &Action| match action {
            Action::Pin { thread, .. } if thread.tid >= 500 => Some(thread.tid),
            _ => None,
        };
        plan.steps.iter().filter_map(|step| pin(&step.action)).collect()
    }

    #[test]
    fn from_1_2_on_the_server_gets_a_file_and_its_thread_a_place_at_once() {
        let mut machine = machine();
        process(&mut machine, 500, "pipewire", "/usr/bin/pipewire", GROUP, 1402);
        let plan =
            made(&machine, vec![link("server", "pipewire", PipeWire::Server, "2", Some(80))]);
        let unit = UserUnit { uid: 1000, unit: "pipewire.service".into() };
        let wanted = "\
# Written by `quietcores apply`, taken away by `quietcores revert`.
context.properties.rules = [
    { matches = [ { application.process.user = \"ann\" } ]
      actions = { update-props = { context.data-loops = [
          { loop.class = [ data.rt audio.rt ] loop.rt-prio = 80 thread.name = data-loop.0 thread.affinity = [ 2 ] }
      ] } }
    }
]
";
        assert_eq!(files(&plan), [(SERVER, wanted, &[unit][..])]);
        assert_eq!(pins(&plan), [501]);
        // Last: what it starts anew is placed after all.
        assert!(matches!(plan.steps.last().unwrap().action, Action::DropIn { .. }));
    }

    #[test]
    fn a_chain_that_never_sleeps_has_loops_of_one_cpu_poll_where_the_plugin_is() {
        let never = Mode::NeverSleepingCore;
        for (polls, cpus, mode, shielded, wanted) in [
            (true, "2", never, "1-3", true),
            (false, "2", never, "1-3", false),
            (true, "2-3", never, "1-3", false),
            (true, "2", Mode::SleepingChain, "1-3", false),
            // Its other threads would never run.
            (true, "2", never, "2", false),
        ] {
            let mut machine = machine();
            process(&mut machine, 500, "pipewire", "/usr/bin/pipewire", GROUP, 1402);
            machine.pipewire[0].polls = polls;
            let links = vec![link("server", "pipewire", PipeWire::Server, cpus, Some(80))];
            let shielded = Choice::These(good::set(shielded));
            let chain = Chain { cpus: shielded, links, mode, ..Chain::default() };
            let plan = plan(&machine, &chain).unwrap();
            let text = files(&plan)[0].1;
            let plugin = "{ library.name.system = quietcores/libspa-quietcores loop.class";
            assert_eq!(text.contains(plugin), wanted, "{text}");
            let said = plan.findings.iter().any(|f| f.id == "plan.pipewire-asleep");
            assert_eq!(said, mode == never && !wanted, "{:?}", plan.findings);
            // Its first thread is in no list: it is kept off the loop's CPU, and before the loop is put there.
            let places: Vec<(u32, String)> = plan
                .steps
                .iter()
                .filter_map(|step| match &step.action {
                    Action::Pin { thread, cpus } if thread.tid >= 500 => {
                        Some((thread.tid, cpus.to_string()))
                    }
                    _ => None,
                })
                .collect();
            let all = [(500, "1,3".to_owned()), (501, cpus.to_owned())];
            assert_eq!(places, if wanted { &all[..] } else { &all[1..] }, "{polls} {cpus}");
        }
    }

    #[test]
    fn before_1_2_and_where_nothing_is_known_threads_alone_are_placed() {
        for number in [365, 1007, 0] {
            let mut machine = machine();
            process(&mut machine, 500, "pipewire", "/usr/bin/pipewire", GROUP, number);
            if number == 0 {
                machine.pipewire.clear();
            }
            let plan =
                made(&machine, vec![link("server", "pipewire", PipeWire::Server, "2", Some(80))]);
            assert_eq!((files(&plan).len(), pins(&plan)), (0, vec![501]));
            let told = plan.findings.iter().find(|f| f.id == "plan.pipewire-by-thread").unwrap();
            assert_eq!(told.title.contains("0.3.65"), number == 365, "{told:?}");
        }
    }

    #[test]
    fn loops_of_versions_that_gave_them_no_name_are_found_where_there_is_one_such_thread() {
        for (threads, wanted) in [
            (&["pipewire"][..], &[501][..]),
            (&["module-rt", "pipewire"], &[502]),
            (&["pw-data-loop", "pipewire"], &[501]),
            (&["pipewire", "pipewire"], &[]),
            (&["data-loop.0", "pipewire"], &[501]),
            (&["module-rt"], &[]),
        ] {
            let mut machine = machine();
            process(&mut machine, 500, "pipewire", "/usr/bin/pipewire", GROUP, 365);
            machine.pipewire.clear();
            let mut task = machine.tasks.pop().unwrap();
            for (at, comm) in (501..).zip(threads) {
                (task.tid, task.comm) = (at, (*comm).to_owned());
                machine.tasks.push(task.clone());
            }
            let server = link("server", "pipewire", PipeWire::Server, "2", Some(80));
            let plan = made(&machine, vec![server]);
            assert_eq!(pins(&plan), wanted, "{threads:?}");
            let absent = plan.findings.iter().any(|f| f.id == "plan.thread-absent");
            assert_eq!(absent, wanted.is_empty(), "{threads:?}");
        }
    }

    #[test]
    fn a_program_gets_rules_of_its_own_and_nobody_is_started_anew() {
        let mut machine = machine();
        process(
            &mut machine,
            500,
            "pipewire",
            "/usr/bin/pipewire",
            "/user.slice/user-1000.slice/session-2.scope",
            1200,
        );
        process(&mut machine, 520, "pw-play", "/usr/bin/pw-cat (deleted)", "/x.service", 1200);
        process(&mut machine, 540, "odd", "/usr/bin/~od\"d", "/x.service", 1200);
        let links = vec![
            link("player", "pw-play", PipeWire::Client, "1,3", None),
            link("odd", "odd", PipeWire::Client, "3", Some(60)),
            link("server", "pipewire", PipeWire::Server, "2", Some(80)),
        ];
        let plan = made(&machine, links);
        let files = files(&plan);
        let paths: Vec<&str> = files.iter().map(|file| file.0).collect();
        assert_eq!(paths, [CLIENTS[0], CLIENTS[1], SERVER]);
        assert_eq!(files[0].1, files[1].1);
        let rule = "application.process.user = \"ann\" application.process.binary = \"pw-cat\" } ]";
        assert!(
            files[0].1.contains(rule) && !files[0].1.contains("od"),
            "{}",
            files[0].1.replace("loop", "")
        );
        assert!(files[0].1.contains(
            "[ data.rt audio.rt ] thread.name = data-loop.0 thread.affinity = [ 1 3 ] }"
        ));
        assert!(files.iter().all(|file| file.2.is_empty()));
        let by_hand = plan.findings.iter().filter(|f| f.id == "plan.pipewire-restart").count();
        assert_eq!(by_hand, 1);
        // A list of one's own: the loops are one's own as well.
        let mut own = link("server", "pipewire", PipeWire::Server, "2", Some(80));
        if let Target::Process { threads, .. } = &mut own.target {
            *threads = vec!["data-loop.1".into()];
        }
        assert!(self::files(&made(&machine, vec![own])).is_empty());
    }
}

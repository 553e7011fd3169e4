//! What is right on a machine where nobody says otherwise: who plays, through which card, on how many cores.

use crate::{choose::taken, links::seats, lookup::Lookup, names::says, owner};
use quiet_types::{
    Chain, CpuSet, Machine,
    chain::{Choice, IrqSource, Link, Owner, PipeWire, Target, User},
    machine::{Device, Preemption, Task},
    setup::{CardFound, PlayerFound, PlayerKind, SetupAnswers, SetupProposal},
};

/// Highest of a chain: what the card asks for is served first.
const OUTPUT: u8 = 85;

/// By which names a player's processes go, and how it is scheduled.
struct Habit {
    comms: &'static [&'static str],
    /// Threads that carry sound; empty for all.
    threads: &'static [&'static str],
    priority: u8,
    /// Whose it is where none runs.
    user: Option<&'static str>,
}

fn habit(kind: PlayerKind) -> Habit {
    let habit = |comms, threads, priority, user| Habit { comms, threads, priority, user };
    let of_mpd = &["mpd", "io", "rtio", "player", "decoder", "output"];
    match kind {
        PlayerKind::Mpd => habit(&["mpd"], of_mpd, 70, Some("mpd")),
        PlayerKind::CamillaDsp => habit(&["camilladsp"], &[], 75, None),
        PlayerKind::Jack => habit(&["jackd", "jackdbus"], &[], 78, None),
        PlayerKind::PipeWire => habit(&[PipeWire::SERVER], &[PipeWire::LOOPS], 80, None),
        // It seats its own thread.
        PlayerKind::Engine => habit(&[], &[], 0, None),
    }
}

/// What one can play with here, and what is likely. `me` is the user who asks.
pub fn propose(machine: &Machine, me: Option<u32>) -> SetupProposal {
    let on = Lookup::new(machine);
    let runs = |kind| !running(&on, kind, me).is_empty();
    let dedicated = runs(PlayerKind::Mpd) || runs(PlayerKind::CamillaDsp);
    let proposed = |kind| match kind {
        PlayerKind::Mpd | PlayerKind::CamillaDsp | PlayerKind::Jack => runs(kind),
        // Every desktop runs it: it is meant where nothing else is.
        PlayerKind::PipeWire => runs(kind) && !dedicated && !runs(PlayerKind::Jack),
        PlayerKind::Engine => !dedicated && !runs(PlayerKind::Jack) && !runs(PlayerKind::PipeWire),
    };
    let players = PlayerKind::ALL.map(|(kind, _)| PlayerFound {
        kind,
        running: running(&on, kind, me).iter().map(|task| owner::who(machine, task)).collect(),
        proposed: proposed(kind),
    });
    let mut cards: Vec<&Device> = machine.sound_cards.iter().collect();
    cards.sort_by_key(|card| (card.irqs.is_empty(), is_display(card), !is_usb(card)));
    SetupProposal {
        players: players.to_vec(),
        cards: cards.into_iter().map(|card| found(machine, card)).collect(),
        most_cores: most_cores(machine),
        last: false,
    }
}

/// First threads of a player's processes: those of the user who asks, else all.
fn running<'a>(on: &Lookup<'a>, kind: PlayerKind, me: Option<u32>) -> Vec<&'a Task> {
    let firsts = habit(kind).comms.iter().flat_map(|comm| on.firsts(comm));
    let all: Vec<&Task> = firsts.filter(|task| task.state != 'Z').collect();
    let mine: Vec<&Task> = all.iter().copied().filter(|task| Some(task.uid) == me).collect();
    if mine.is_empty() { all } else { mine }
}

fn is_usb(card: &Device) -> bool {
    card.path.contains("/usb")
}

/// Outputs of screens are cards too.
fn is_display(card: &Device) -> bool {
    ["HDMI", "NVidia", "DisplayPort"].iter().any(|word| says(&card.description, word))
}

fn found(machine: &Machine, card: &Device) -> CardFound {
    let id = card.description.split(": ").next().unwrap_or_default();
    let meant = |name: &str| {
        let cards = machine.sound_cards.iter();
        cards.filter(|one| one.name == name || says(&one.description, name)).count() == 1
    };
    let name = if !id.is_empty() && meant(id) { id } else { &card.name };
    CardFound {
        name: name.to_owned(),
        about: card.description.clone(),
        has_interrupts: !card.irqs.is_empty(),
    }
}

fn open_cores(machine: &Machine) -> usize {
    let taken = taken(machine);
    machine.cores().iter().filter(|core| !core.intersects(&taken)).count()
}

fn most_cores(machine: &Machine) -> u32 {
    u32::try_from(open_cores(machine).saturating_sub(1)).unwrap_or(u32::MAX)
}

/// How many cores are right: as many as the links need, at most half of the machine.
pub fn cores(machine: &Machine, answers: &SetupAnswers, me: Option<u32>) -> u32 {
    let half = (open_cores(machine) / 2).max(1);
    let wanted = seats::wanted(&chain(machine, answers, me).links).min(half);
    u32::try_from(wanted).unwrap_or(1).min(most_cores(machine))
}

/// The chain that is answered for.
pub fn chain(machine: &Machine, answers: &SetupAnswers, me: Option<u32>) -> Chain {
    let on = Lookup::new(machine);
    let mut kinds = answers.players.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let mut links: Vec<Link> = kinds.iter().filter_map(|kind| link(&on, *kind, me)).collect();
    let threaded = machine.kernel.preemption == Preemption::Rt
        || machine.boot_parameter("threadirqs").is_some();
    let has_interrupts = |name: &&String| {
        let mut cards = machine.sound_cards.iter();
        cards.any(|card| !card.irqs.is_empty() && found(machine, card).name == **name)
    };
    links.extend(answers.card.as_ref().filter(has_interrupts).map(|name| Link {
        name: "output".into(),
        target: Target::Irq(IrqSource::Card(name.clone())),
        cpus: None,
        // Without threads of their own interrupts have none.
        priority: threaded.then_some(OUTPUT),
    }));
    let cpus = match answers.cores {
        0 => Choice::These(last_cpu(machine)),
        cores => Choice::Cores(cores),
    };
    let players: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let name = match &answers.card {
        Some(card) => format!("{} on {card}", players.join(", ")),
        None => players.join(", "),
    };
    Chain { name: Some(name), cpus, links, ..Chain::default() }
}

/// The likeliest one to be given where there is only one core.
fn last_cpu(machine: &Machine) -> CpuSet {
    machine.online.difference(&taken(machine)).iter().last().into_iter().collect()
}

fn link(on: &Lookup<'_>, kind: PlayerKind, me: Option<u32>) -> Option<Link> {
    let habit = habit(kind);
    let firsts = running(on, kind, me);
    let comm = firsts.first().map(|task| task.comm.as_str()).or(habit.comms.first().copied())?;
    let name = |uid: u32| {
        if uid == 0 {
            return User::Name("root".into());
        }
        let known = on.machine.users.iter().find(|(_, known)| **known == uid);
        known.map_or(User::Uid(uid), |(name, _)| User::Name(name.clone()))
    };
    let mut uids: Vec<u32> =
        firsts.iter().filter(|task| task.comm == comm).map(|task| task.uid).collect();
    uids.sort_unstable();
    uids.dedup();
    let mut users: Vec<User> = uids.into_iter().map(name).collect();
    if users.is_empty() {
        users.extend(habit.user.map(|user| User::Name(user.into())).or(me.map(name)));
    }
    Some(Link {
        name: kind.name().into(),
        target: Target::Process {
            comm: comm.into(),
            threads: habit.threads.iter().map(|name| (*name).to_owned()).collect(),
            owner: Owner { users, ..Owner::default() },
            pipewire: (kind == PlayerKind::PipeWire).then_some(PipeWire::Server),
        },
        cpus: None,
        priority: Some(habit.priority),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chain as chains,
        check::tests::good::{machine, task},
        plan,
        written::chain_text,
    };
    use quiet_types::machine::Policy;

    fn runs(machine: &mut Machine, comm: &str, uid: u32) {
        let tid = 5_000 + machine.tasks.len() as u32;
        machine.tasks.push(Task { uid, ..task(tid, comm, "0-3", Policy::Other, 0) });
    }

    fn without_players() -> Machine {
        let mut machine = machine();
        machine.tasks.retain(|task| task.kernel.is_some());
        machine
    }

    fn proposed(machine: &Machine, me: Option<u32>) -> Vec<PlayerKind> {
        let found = propose(machine, me).players;
        found.into_iter().filter(|one| one.proposed).map(|one| one.kind).collect()
    }

    fn answers(machine: &Machine, me: Option<u32>) -> SetupAnswers {
        let found = propose(machine, me);
        let mut answers = SetupAnswers {
            players: proposed(machine, me),
            card: found.cards.first().map(|card| card.name.clone()),
            ..SetupAnswers::default()
        };
        answers.cores = cores(machine, &answers, me);
        answers
    }

    #[test]
    fn what_runs_is_proposed_and_a_desktops_server_only_where_nothing_else_does() {
        let mut machine = without_players();
        assert_eq!(proposed(&machine, None), [PlayerKind::Engine]);
        runs(&mut machine, "pipewire", 1000);
        assert_eq!(proposed(&machine, None), [PlayerKind::PipeWire]);
        runs(&mut machine, "jackdbus", 1000);
        assert_eq!(proposed(&machine, None), [PlayerKind::Jack]);
        runs(&mut machine, "mpd", 107);
        runs(&mut machine, "camilladsp", 1000);
        let all = [PlayerKind::Mpd, PlayerKind::CamillaDsp, PlayerKind::Jack];
        assert_eq!(proposed(&machine, None), all);
    }

    #[test]
    fn the_chain_of_the_defaults_reads_back_has_a_plan_and_rises() {
        let mut machine = without_players();
        machine.users.insert("mpd".into(), 107);
        runs(&mut machine, "mpd", 107);
        runs(&mut machine, "camilladsp", 1000);
        let answers = answers(&machine, Some(1000));
        // Four cores: half of them, although the links would take three.
        assert_eq!((answers.cores, answers.card.as_deref()), (2, Some("DAC")));
        let chain = chain(&machine, &answers, Some(1000));
        let text = chain_text(&chain, &[]);
        assert_eq!(chains::parse(&text, "x.toml", None).unwrap(), chain, "{text}");
        assert!(text.contains("user = \"mpd\"") && text.contains("user = 1000"), "{text}");
        let made = plan(&machine, &chain).unwrap();
        assert_eq!(made.shield.cpus.len(), 2);
        assert!(made.findings.iter().all(|f| f.id != "plan.link-absent"), "{:?}", made.findings);
    }

    #[test]
    fn of_several_users_the_one_who_asks_is_meant() {
        let mut machine = without_players();
        runs(&mut machine, "pipewire", 120);
        runs(&mut machine, "pipewire", 1000);
        let users = |me| {
            let answers = answers(&machine, me);
            match chain(&machine, &answers, me).links.remove(0).target {
                Target::Process { owner, .. } => owner.users,
                Target::Irq(_) => panic!("no process"),
            }
        };
        assert_eq!(users(Some(1000)), [User::Uid(1000)]);
        assert_eq!(users(None), [User::Uid(120), User::Uid(1000)]);
    }

    #[test]
    fn a_usb_card_goes_before_one_on_the_board_and_a_screen_comes_last() {
        let mut machine = machine();
        let card = |name: &str, description: &str, path: &str, irqs: &[u32]| Device {
            name: name.into(),
            description: description.into(),
            path: path.into(),
            irqs: irqs.to_vec(),
            ..Device::default()
        };
        machine.sound_cards = vec![
            card("card0", "HDMI: HDA HDMI", "/sys/devices/pci0/0000:01:00.1/sound/card0", &[41]),
            card(
                "card1",
                "PCH: HDA Intel PCH",
                "/sys/devices/pci0/0000:00:1f.3/sound/card1",
                &[42],
            ),
            card("card2", "USB: Solo USB", "/sys/devices/pci0/usb1/1-1/1-1:1.0/sound/card2", &[43]),
            card("card3", "Duo: Duo USB", "/sys/devices/pci0/usb1/1-2/1-2:1.0/sound/card3", &[43]),
        ];
        let names: Vec<String> =
            propose(&machine, None).cards.into_iter().map(|card| card.name).collect();
        // `USB` is a word of two of them.
        assert_eq!(names, ["card2", "Duo", "PCH", "HDMI"]);
    }

    #[test]
    fn one_core_with_two_cpus_gives_its_last() {
        let mut machine = machine();
        let both: CpuSet = "0-1".parse().unwrap();
        machine.online.clone_from(&both);
        machine.cpus.truncate(2);
        for cpu in &mut machine.cpus {
            (cpu.core, cpu.siblings) = (Some(0), both.clone());
        }
        machine.cgroups.groups.clear();
        machine.cgroups.v2_isolated = None;
        let answers = answers(&machine, None);
        assert_eq!(answers.cores, 0);
        let chosen = chain(&machine, &answers, None).cpus;
        assert_eq!(chosen, Choice::These("1".parse().unwrap()));
    }
}

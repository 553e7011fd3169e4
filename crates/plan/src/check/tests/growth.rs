//! What a plan and an audit look at grows with what is there, not with its square.

use super::{super::facts::Facts, CHECKS, good};
use crate::{lookup::Lookup, place, plan_on};
use quiet_types::{
    Chain, Machine,
    chain::{IrqSource, Link, Owner, Target, User},
    machine::Policy,
};

/// Threads of each process.
const THREADS: u32 = 4;

/// A machine of `count` interrupts, each with its thread, and `count` processes; a chain of all of them.
fn crowd(count: u32) -> (Machine, Chain) {
    let mut machine = good::machine();
    for at in 0..count {
        machine.irqs.push(good::irq(1000 + at, &format!("dev{at}"), "1", 5));
        let name = format!("irq/{}-dev{at}", 1000 + at);
        machine.tasks.push(good::kernel_thread(10_000 + at, &name, "1", 50, true));
        let pid = 100_000 + THREADS * at;
        for tid in pid..pid + THREADS {
            let name = format!("p{at}");
            let task = good::task(tid, &name, "2", Policy::Fifo, 10);
            machine.tasks.push(quiet_types::machine::Task { pid, ..task });
        }
    }
    let owner = Owner { users: vec![User::Uid(1000)], ..Owner::default() };
    let link = |name: String, target| Link { name, target, cpus: None, priority: None };
    let process = |at: u32| Target::Process {
        comm: format!("p{at}"),
        threads: Vec::new(),
        owner: owner.clone(),
        pipewire: None,
    };
    let irq = |at: u32| Target::Irq(IrqSource::Number(1000 + at));
    let links = (0..count)
        .flat_map(|at| [link(format!("i{at}"), irq(at)), link(format!("l{at}"), process(at))]);
    let chain = Chain { links: links.collect(), ..good::chain() };
    (machine, chain)
}

/// How many threads and interrupts are looked up for a plan, for the look where the links are, and for an audit.
fn looked_up(count: u32) -> [usize; 3] {
    let (machine, chain) = crowd(count);
    let on = Lookup::new(&machine);
    let plan = plan_on(&on, &chain).expect("a plan");
    assert_eq!(plan.links.len() as u32, 2 * count);
    let for_plan = on.given.get();
    let on = Lookup::new(&machine);
    assert!(!place::astray_on(&on, &plan.links, &plan.shield).is_empty());
    let for_place = on.given.get();
    let facts = Facts::new(&machine, Some(&chain));
    for check in CHECKS {
        (check.decide)(&facts);
    }
    [for_plan, for_place, facts.on.given.get()]
}

#[test]
fn what_is_looked_up_grows_with_the_links() {
    let (few, many) = (looked_up(50), looked_up(400));
    for (few, many) in few.into_iter().zip(many) {
        assert!(few > 0 && many <= 8 * few, "{few} for 50, {many} for 400");
        // A link's interrupt, its handler, a process and its threads, some times over: not the machine.
        assert!(many <= 400 * 100, "{many} for 400");
    }
}

#[test]
fn the_interrupt_of_a_handler_is_read_from_its_name_as_the_kernel_writes_it() {
    for (name, irq) in [
        ("irq/124-xhci_hc", Some(124)),
        ("irq/0-timer", Some(0)),
        ("irq/124-s-xhci", Some(124)),
        ("irq/0124-x", None),
        ("irq/+12-x", None),
        ("irq/124", None),
        ("irq/-x", None),
        ("irq/99999999999-x", None),
        ("ksoftirqd/1", None),
    ] {
        assert_eq!(crate::names::served(name), irq, "{name}");
    }
}

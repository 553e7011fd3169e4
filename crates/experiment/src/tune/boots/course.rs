//! What a boot has to do for a tune of boot parameters: measure, or ask for the next one. It knows no machine, so that simulated ones go
//! through the same, with power cuts at every place.

use quiet_types::{
    boots::{AskedBoot, BootFactor, BootPlot, BootTune},
    tune::{TuneBlock, TunedBoot},
};

/// A plot that did not come as it was asked, or was cut short, so often, ends the tune: a machine that does not come up with it is
/// started anew by hand each time.
pub(super) const MOST_TRIES: u32 = 4;

/// The boot that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ThisBoot {
    /// The kernel's name of it.
    pub id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's command line.
    pub words: Vec<String>,
    /// Words that stand there and did nothing.
    pub ignored: Vec<String>,
}

impl ThisBoot {
    /// Whether it is what a plot asks for, by its kernel and its command line.
    fn fits(&self, tune: &BootTune, plot: &BootPlot) -> bool {
        let as_asked = tune.factors.iter().zip(&plot.on).filter(|(one, _)| one.kernel().is_none());
        self.kernel == tune.kernel_of(plot)
            && as_asked
                .into_iter()
                .all(|(one, on)| self.words.contains(&one.parameter.word()) == *on)
    }
}

/// Where boots are asked for and measured.
pub(super) trait BootBench {
    /// What stands in the way.
    type Error;

    /// The boot that runs.
    fn this(&self, tune: &BootTune) -> Result<ThisBoot, Self::Error>;

    /// The boot loader's files are as before when this returns.
    fn take_back(&mut self) -> Result<(), Self::Error>;

    /// Asks the boot loader for one boot of a plot.
    fn ask(&mut self, tune: &BootTune, plot: &BootPlot) -> Result<(), Self::Error>;

    /// Measures in this boot; `None` where it was interrupted.
    fn measure(&mut self, tune: &BootTune) -> Result<Option<Vec<TuneBlock>>, Self::Error>;

    /// On the disk when this returns.
    fn keep(&mut self, tune: &BootTune) -> Result<(), Self::Error>;

    /// Now, UTC.
    fn now(&self) -> String;
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BootMove {
    /// A reboot, for what was asked of the boot loader.
    Reboot,
    /// All boots are measured.
    Done,
    /// A plot did not come as it was asked.
    GivenUp(String),
    /// It was interrupted; the next boot goes on.
    Interrupted,
}

/// What a boot does, from its beginning. At each instant it may be cut: what is on the disk then is enough to go on.
pub(super) fn go_on<B: BootBench>(
    tune: &mut BootTune,
    bench: &mut B,
) -> Result<BootMove, B::Error> {
    // First of all: a power cut from here on finds the boot loader as it was.
    bench.take_back()?;
    let Some(plot) = tune.next().cloned() else { return Ok(BootMove::Done) };
    let this = bench.this(tune)?;
    let came = tune.asked.as_ref().is_some_and(|asked| asked.by != this.id);
    if came && this.fits(tune, &plot) {
        let Some(blocks) = bench.measure(tune)? else { return Ok(BootMove::Interrupted) };
        let boot = measured(tune, &plot, this.clone(), blocks, bench.now());
        tune.boots.push(boot);
        tune.tries = 0;
        tune.asked = None;
        bench.keep(tune)?;
    } else if came {
        tune.tries += 1;
        if tune.tries >= MOST_TRIES {
            return Ok(BootMove::GivenUp(given_up(tune, &plot)));
        }
    }
    let Some(plot) = tune.next().cloned() else { return Ok(BootMove::Done) };
    tune.asked = Some(AskedBoot { by: this.id });
    bench.keep(tune)?;
    bench.ask(tune, &plot)?;
    Ok(BootMove::Reboot)
}

fn measured(
    tune: &BootTune,
    plot: &BootPlot,
    this: ThisBoot,
    blocks: Vec<TuneBlock>,
    started: String,
) -> TunedBoot {
    let (void, on): (Vec<&BootFactor>, Vec<&BootFactor>) =
        tune.on(plot).partition(|one| this.ignored.contains(&one.parameter.word()));
    let names =
        |all: Vec<&BootFactor>| all.into_iter().map(|one| one.factor.name.clone()).collect();
    TunedBoot {
        pair: plot.pair,
        on: names(on),
        void: names(void),
        boot: this.id,
        kernel: this.kernel,
        started,
        tries: tune.tries + 1,
        blocks,
    }
}

fn given_up(tune: &BootTune, plot: &BootPlot) -> String {
    let words = tune.words(plot);
    let with = if words.is_empty() { "no parameter of the tune".into() } else { words.join(" ") };
    format!(
        "a boot of kernel {} with {with} was asked for {} times, and the machine came up otherwise each time",
        tune.kernel_of(plot),
        tune.tries
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        boot::Parameter,
        tune::{Factor, TuneValue},
    };
    use std::collections::BTreeSet;

    /// The power fails at some calls of the bench.
    #[derive(Debug)]
    struct PowerCut;

    /// A machine whose disk outlives its boots: the tune as it was kept, and the one boot that the loader was asked for.
    #[derive(Default)]
    struct Simulated {
        disk: Option<BootTune>,
        trial: Option<(String, Vec<String>)>,
        boots: usize,
        words: Vec<String>,
        kernel: String,
        calls: usize,
        cuts: BTreeSet<usize>,
        /// A word with which the machine does not come up.
        deadly: Option<String>,
        /// A word that the kernel takes and does not do.
        ignored: Vec<String>,
        measured: Vec<Vec<String>>,
    }

    impl Simulated {
        fn may_fail(&mut self) -> Result<(), PowerCut> {
            self.calls += 1;
            if self.cuts.remove(&self.calls) { Err(PowerCut) } else { Ok(()) }
        }

        fn boot(&mut self) {
            self.boots += 1;
            // The loader forgets what it was asked for before it boots it.
            (self.kernel, self.words) = self.trial.take().unwrap_or(("k".into(), Vec::new()));
            if self.deadly.as_ref().is_some_and(|word| self.words.contains(word)) {
                // Somebody pulls the plug.
                self.boot();
            }
        }
    }

    impl BootBench for Simulated {
        type Error = PowerCut;

        fn this(&self, _: &BootTune) -> Result<ThisBoot, PowerCut> {
            Ok(ThisBoot {
                id: format!("boot {}", self.boots),
                kernel: self.kernel.clone(),
                words: self.words.clone(),
                ignored: self.ignored.clone(),
            })
        }

        fn take_back(&mut self) -> Result<(), PowerCut> {
            self.may_fail()?;
            self.trial = None;
            self.may_fail()
        }

        fn ask(&mut self, tune: &BootTune, plot: &BootPlot) -> Result<(), PowerCut> {
            self.may_fail()?;
            self.trial = Some((tune.kernel_of(plot).to_owned(), tune.words(plot)));
            self.may_fail()
        }

        fn measure(&mut self, _: &BootTune) -> Result<Option<Vec<TuneBlock>>, PowerCut> {
            self.may_fail()?;
            let mut words = self.words.clone();
            words.push(self.kernel.clone());
            self.measured.push(words);
            self.may_fail()?;
            let values = vec![TuneValue { value: 1.0, half: 0.5 }];
            Ok(Some(vec![TuneBlock { values, ..TuneBlock::default() }]))
        }

        fn keep(&mut self, tune: &BootTune) -> Result<(), PowerCut> {
            self.may_fail()?;
            self.disk = Some(tune.clone());
            self.may_fail()
        }

        fn now(&self) -> String {
            String::new()
        }
    }

    fn tune(boots: usize) -> BootTune {
        let one = |name: &str, value: &str| BootFactor {
            factor: Factor { name: name.into(), steps: Vec::new(), why: String::new() },
            parameter: Parameter {
                name: name.into(),
                value: (!value.is_empty()).then(|| value.into()),
                why: String::new(),
            },
        };
        BootTune {
            factors: vec![one("isolcpus", "3"), one("threadirqs", ""), one("kernel", "rt")],
            order: quiet_judge::tune::boot_order(7, 3, boots),
            kernel: "k".into(),
            ..BootTune::default()
        }
    }

    /// Boots until it is over; a power cut boots as well.
    fn whole(machine: &mut Simulated, boots: usize) -> BootMove {
        machine.kernel = "k".into();
        machine.disk = Some(tune(boots));
        for _ in 0..200 {
            let mut tune = machine.disk.clone().unwrap();
            match go_on(&mut tune, machine) {
                Ok(BootMove::Reboot) | Err(PowerCut) => machine.boot(),
                Ok(over) => return over,
            }
        }
        panic!("it does not end: {:?}", machine.disk);
    }

    fn wanted(tune: &BootTune) -> Vec<Vec<String>> {
        let words = |plot: &BootPlot| {
            let mut words = tune.words(plot);
            words.push(tune.kernel_of(plot).to_owned());
            words
        };
        tune.order.iter().map(words).collect()
    }

    #[test]
    fn each_boot_is_measured_once_with_what_it_was_asked_for() {
        let mut machine = Simulated::default();
        assert_eq!(whole(&mut machine, 8), BootMove::Done);
        let disk = machine.disk.clone().unwrap();
        assert_eq!(disk.boots.len(), 8);
        assert_eq!(machine.measured, wanted(&disk));
        assert_eq!(machine.boots, 8);
        assert!(machine.trial.is_none());
    }

    #[test]
    fn the_power_may_be_cut_at_any_call_and_every_boot_is_there_in_the_end() {
        let mut clean = Simulated::default();
        whole(&mut clean, 4);
        for first in 1..=clean.calls {
            for second in [0, first + 1, first + 4, first + 9] {
                let cuts = [first, second].into_iter().collect();
                let mut machine = Simulated { cuts, ..Simulated::default() };
                assert_eq!(whole(&mut machine, 4), BootMove::Done, "cuts at {first} and {second}");
                let disk = machine.disk.clone().unwrap();
                assert_eq!(disk.boots.len(), 4, "cuts at {first} and {second}");
                // What counts was measured with what was asked, whatever had to be measured again.
                for (boot, plot) in disk.boots.iter().zip(&disk.order) {
                    let names: Vec<String> =
                        disk.on(plot).map(|one| one.factor.name.clone()).collect();
                    assert_eq!((boot.pair, &boot.on), (plot.pair, &names));
                }
                assert!(machine.trial.is_none(), "the loader is left changed");
                let all = wanted(&disk);
                assert!(machine.measured.iter().all(|words| all.contains(words)));
            }
        }
    }

    #[test]
    fn a_parameter_with_which_the_machine_does_not_come_up_ends_it_and_the_loader_is_as_before() {
        let mut machine = Simulated { deadly: Some("threadirqs".into()), ..Simulated::default() };
        let BootMove::GivenUp(why) = whole(&mut machine, 8) else { panic!() };
        assert!(why.contains("threadirqs") && why.contains("4 times"), "{why}");
        assert!(machine.trial.is_none());
        assert!(machine.disk.unwrap().boots.len() < 8);
    }

    #[test]
    fn what_the_kernel_takes_and_does_not_do_is_void() {
        let mut machine = Simulated { ignored: vec!["isolcpus=3".into()], ..Simulated::default() };
        assert_eq!(whole(&mut machine, 4), BootMove::Done);
        let boots = machine.disk.unwrap().boots;
        assert_eq!(boots.iter().filter(|boot| boot.void == ["isolcpus"]).count(), 2);
        assert!(boots.iter().all(|boot| !boot.on.contains(&"isolcpus".to_owned())));
    }

    #[test]
    fn a_program_that_is_started_twice_in_a_boot_measures_nothing_twice() {
        let mut machine = Simulated { kernel: "k".into(), ..Simulated::default() };
        let mut tune = tune(4);
        assert!(matches!(go_on(&mut tune, &mut machine), Ok(BootMove::Reboot)));
        assert!(matches!(go_on(&mut tune, &mut machine), Ok(BootMove::Reboot)));
        assert_eq!((tune.tries, machine.measured.len()), (0, 0));
    }
}

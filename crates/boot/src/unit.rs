//! The systemd units that put the run-time part up again at every boot.

use super::error::{Error, Result};

/// Where the unit is written, and where it is enabled as `systemctl enable` does it.
pub const UNIT: &str = "/etc/systemd/system/quietcores.service";
/// The unit that keeps the shield as it was made.
pub const WATCH: &str = "/etc/systemd/system/quietcores-watch.service";
/// The unit that blesses a trial.
pub const BLESS: &str = "/etc/systemd/system/quietcores-bless.service";
/// The unit by which a tune of boot parameters goes on after each reboot.
pub const TUNE: &str = "/etc/systemd/system/quietcores-tune.service";
/// Where units that start with the system are linked.
pub const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";
/// The chain file that the unit applies.
pub const CHAIN: &str = "/etc/quietcores/chain.toml";

/// The word on the kernel's command line that keeps every unit from starting, for one boot or for all.
pub const OFF: &str = "quietcores.off";

/// What the unit is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The installed program.
    pub program: String,
    /// Arguments of `apply`, without `--yes`.
    pub apply: Vec<String>,
    /// The chain file's text, copied to [`CHAIN`].
    pub chain: Option<Vec<u8>>,
}

/// The text of [`UNIT`].
///
/// After multi-user.target, so that the services of a chain run when their links are looked for.
/// The holder of `/dev/cpu_dma_latency` stays in the unit's group of processes until it is stopped.
///
/// # Errors
/// When a word cannot stand in a unit file as it is.
pub fn service(service: &Service) -> Result<String> {
    let apply = line(&service.program, "apply", &service.apply)?;
    let revert = line(&service.program, "revert", &[])?;
    Ok(format!(
        "# Written by `quietcores persist`, taken away by `quietcores unpersist`.\n\
         [Unit]\n\
         Description=CPUs of their own for the audio chain (quietcores)\n\
         Documentation=man:quietcores(1)\n\
         ConditionKernelCommandLine=!{OFF}\n\
         After=multi-user.target sound.target irqbalance.service tuned.service\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={apply} --yes\n\
         # 1: the shield is up and some steps were refused; `quietcores status` names them.\n\
         SuccessExitStatus=1\n\
         ExecStop={revert}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// The text of [`WATCH`].
///
/// It ends with the shield's unit, and before it: a watch must not put right what is being taken
/// down.
///
/// # Errors
/// As of [`service`].
pub fn watch(service: &Service) -> Result<String> {
    // The CPUs are those of the shield that is up.
    let at = service.apply.iter().position(|word| word == "--cpus");
    let cpus = at.map_or(0..0, |at| at..at + 2);
    let words = service.apply.iter().enumerate().filter(|(at, _)| !cpus.contains(at));
    let arguments: Vec<String> = words.map(|(_, word)| word.clone()).collect();
    let watch = line(&service.program, "watch", &arguments)?;
    Ok(format!(
        "# Written by `quietcores persist`, taken away by `quietcores unpersist`.\n\
         [Unit]\n\
         Description=Keep the CPUs of the audio chain as they were given (quietcores)\n\
         Documentation=man:quietcores(1)\n\
         ConditionKernelCommandLine=!{OFF}\n\
         BindsTo=quietcores.service\n\
         After=multi-user.target quietcores.service\n\
         \n\
         [Service]\n\
         ExecStart={watch}\n\
         Restart=on-failure\n\
         RestartSec=10\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// The text of [`BLESS`].
///
/// # Errors
/// When the program's path cannot stand in a unit file as it is.
pub fn bless(program: &str) -> Result<String> {
    let bless = line(program, "persist", &["--bless".into(), "--yes".into()])?;
    Ok(format!(
        "# Written by `quietcores persist --trial`; gone once the trial is blessed.\n\
         [Unit]\n\
         Description=Keep the boot parameters on trial when all is good (quietcores)\n\
         Documentation=man:quietcores(1)\n\
         ConditionKernelCommandLine=!{OFF}\n\
         Requires=quietcores.service\n\
         # Named as well: what multi-user.target wants would else have to come before it.\n\
         After=multi-user.target quietcores.service\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={bless}\n\
         # 1: the trial is not booted or not good; all stays as it was.\n\
         SuccessExitStatus=1\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// The text of [`TUNE`].
///
/// # Errors
/// When a word cannot stand in a unit file as it is.
pub fn resumption(program: &str, arguments: &[String]) -> Result<String> {
    let tune = line(program, "tune", arguments)?;
    Ok(format!(
        "# Written by `quietcores tune --boot`; gone once the tune is over.\n\
         [Unit]\n\
         Description=Judge boot parameters, boot by boot (quietcores)\n\
         Documentation=man:quietcores(1)\n\
         ConditionKernelCommandLine=!{OFF}\n\
         After=multi-user.target sound.target irqbalance.service tuned.service\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={tune}\n\
         # 1: nothing is shown.\n\
         SuccessExitStatus=1\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

fn line(program: &str, verb: &str, arguments: &[String]) -> Result<String> {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,=".contains(c))
    };
    if !program.starts_with('/') {
        return Err(Error::new(format!(
            "the unit needs the program's whole path, not {}",
            quiet_types::printable(program, 200)
        )));
    }
    let mut words = vec![program.to_owned(), verb.to_owned()];
    words.extend(arguments.iter().cloned());
    match words.iter().find(|word| !plain(word)) {
        Some(word) => Err(Error::new(format!(
            "cannot write `{}` into a systemd unit: it holds a blank or a sign that systemd would \
             read; install the program as /usr/local/bin/quietcores",
            quiet_types::printable(word, 200)
        ))),
        None => Ok(words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_applies_at_start_and_reverts_at_stop() {
        let text = service(&Service {
            program: "/usr/local/bin/quietcores".into(),
            apply: vec![CHAIN.into(), "--cpus".into(), "2-3".into()],
            chain: None,
        })
        .unwrap();
        let has = |line: &str| text.lines().any(|l| l == line);
        assert!(has(
            "ExecStart=/usr/local/bin/quietcores apply /etc/quietcores/chain.toml --cpus 2-3 --yes"
        ));
        assert!(has("ExecStop=/usr/local/bin/quietcores revert"));
        assert!(has("RemainAfterExit=yes"));
    }

    #[test]
    fn the_watch_has_the_chain_and_the_mode_and_ends_with_the_shield() {
        let apply = [CHAIN, "--cpus", "2-3", "--never-sleep", "--smt-off"].map(str::to_owned);
        let service = Service { program: "/usr/bin/q".into(), apply: apply.into(), chain: None };
        let text = watch(&service).unwrap();
        let has = |line: &str| text.lines().any(|l| l == line);
        assert!(has(
            "ExecStart=/usr/bin/q watch /etc/quietcores/chain.toml --never-sleep --smt-off"
        ));
        assert!(has("BindsTo=quietcores.service"));
        let bare = Service { apply: vec!["--cpus".into(), "2-3".into()], ..service };
        assert!(watch(&bare).unwrap().contains("ExecStart=/usr/bin/q watch\n"));
    }

    #[test]
    fn a_word_on_the_kernels_command_line_stops_every_unit() {
        let service = Service { program: "/usr/bin/q".into(), apply: Vec::new(), chain: None };
        for text in [
            super::service(&service),
            watch(&service),
            bless("/usr/bin/q"),
            resumption("/usr/bin/q", &["--boot-go-on".into()]),
        ] {
            let text = text.unwrap();
            let unit = text.split("[Service]").next().unwrap();
            assert!(unit.contains("\nConditionKernelCommandLine=!quietcores.off\n"), "{text}");
        }
    }

    #[test]
    fn a_path_that_systemd_would_read_otherwise_is_refused() {
        for program in ["/home/a b/quietcores", "/opt/%n/quietcores", "quietcores", "/x/$a", "/x\n"]
        {
            assert!(bless(program).is_err(), "{program:?}");
        }
    }
}

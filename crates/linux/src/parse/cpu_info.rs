//! `/proc/cpuinfo`.

/// What is taken from `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// Maker's name of the processor, or of the board where only that is told.
    pub processor: Option<String>,
    /// Whether the processor says that it is a hypervisor's (x86 flag `hypervisor`).
    pub hypervisor: bool,
    /// Whether this is an x86 processor.
    pub x86: bool,
}

/// Reads `/proc/cpuinfo`; architectures differ, and what is not told is `None`.
pub fn cpu_info(text: &str) -> CpuInfo {
    let value = |wanted: &[&str]| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let value = value.trim();
            (wanted.contains(&key.trim()) && !value.is_empty()).then_some(value)
        })
    };
    let arm = || {
        let (maker, part) = (value(&["CPU implementer"])?, value(&["CPU part"])?);
        Some(match (maker, part) {
            ("0x41", "0xc07") => "ARM Cortex-A7".to_owned(),
            ("0x41", "0xd03") => "ARM Cortex-A53".to_owned(),
            ("0x41", "0xd05") => "ARM Cortex-A55".to_owned(),
            ("0x41", "0xd08") => "ARM Cortex-A72".to_owned(),
            ("0x41", "0xd09") => "ARM Cortex-A73".to_owned(),
            ("0x41", "0xd0b") => "ARM Cortex-A76".to_owned(),
            _ => format!("implementer {maker}, part {part}"),
        })
    };
    let flags = value(&["flags"]);
    CpuInfo {
        processor: value(&["model name", "Processor", "uarch", "cpu model"])
            .map(str::to_owned)
            .or_else(arm)
            .or_else(|| value(&["Hardware", "Model"]).map(str::to_owned)),
        hypervisor: flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        x86: value(&["vendor_id"]).is_some() && flags.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_and_arm_processors_are_named() {
        let vm = cpu_info(
            "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n",
        );
        assert_eq!(
            (vm.processor.as_deref(), vm.hypervisor, vm.x86),
            (Some("AMD EPYC"), true, true)
        );
        let pi =
            cpu_info("processor: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\nModel\t: Pi 5\n");
        assert_eq!((pi.processor.as_deref(), pi.x86), (Some("ARM Cortex-A76"), false));
        let odd = cpu_info("CPU implementer\t: 0x61\nCPU part\t: 0x22\n");
        assert_eq!(odd.processor.as_deref(), Some("implementer 0x61, part 0x22"));
        assert_eq!(cpu_info("Hardware : BCM2835\n").processor.as_deref(), Some("BCM2835"));
        assert_eq!(cpu_info("\0:\n::\n"), CpuInfo::default());
    }
}

//! GRUB's own configuration: the drop-in, the generated menu, one entry of it copied for a trial.

use super::{
    form::{is_rescue, words_of},
    lines::lines,
};
use quiet_linux::files::Tree;
use std::ops::Range;

/// The variable that normal entries take and recovery ones do not.
///
/// # Source
/// The GRUB manual, "Simple configuration handling".
pub const VARIABLE: &str = "GRUB_CMDLINE_LINUX_DEFAULT";
/// Our drop-in, on Debian and its children.
pub const DROP_IN: &str = "/etc/default/grub.d/quietcores.cfg";
/// The id of the trial's entry.
pub const TRIAL: &str = "A-quietcores-trial";

/// The drop-in's text.
pub fn drop_in(words: &[String]) -> String {
    format!(
        "# Written by `quietcores persist`, taken away by `quietcores unpersist`.\n\
         # It adds to what others have set; recovery entries do not take it and are the way back.\n\
         {VARIABLE}=\"${{{VARIABLE}}}{}\"\n",
        words.iter().map(|word| format!(" {word}")).collect::<String>()
    )
}

fn program(place: &Tree, names: &[&str]) -> Option<String> {
    let paths = names
        .iter()
        .flat_map(|name| ["/usr/sbin", "/sbin", "/usr/bin"].map(|dir| format!("{dir}/{name}")));
    paths.into_iter().find(|path| place.exists(path))
}

/// GRUB's own maker of menus, as Fedora and SUSE, and as all others call it.
const MAKERS: [&str; 2] = ["grub2-mkconfig", "grub-mkconfig"];

/// The program that makes the menu `cfg` anew and its arguments, and whether it is Debian's.
pub fn updater(place: &Tree, cfg: &str) -> Option<(Vec<String>, bool)> {
    if let Some(path) = program(place, &["update-grub"]) {
        return Some((vec![path], true));
    }
    Some((vec![program(place, &MAKERS)?, "-o".into(), cfg.into()], false))
}

/// The program that finds what GRUB would not understand in a menu.
pub fn script_check(place: &Tree) -> Option<String> {
    program(place, &["grub2-script-check", "grub-script-check"])
}

/// The command of [`updater`] with `to` as the file that it makes. `text` is its program's own.
///
/// `update-grub` hands what it is given on to grub-mkconfig, behind an `-o` of its own; of two the later one
/// holds. `None` where it hands nothing on.
///
/// # Source
/// `/usr/sbin/update-grub` of Debian's grub2-common; `util/grub-mkconfig.in` of GRUB.
pub fn aimed(command: &[String], text: Option<&str>, to: &str) -> Option<Vec<String>> {
    let mut aimed = command.to_vec();
    match command {
        [_] if text.is_some_and(|text| !text.contains("$@") && !text.contains("$*")) => {
            return None;
        }
        [_, option, _] if option == "-o" => aimed.truncate(1),
        _ => {}
    }
    aimed.extend(["-o".into(), to.into()]);
    Some(aimed)
}

/// One `menuentry` of the generated menu that starts Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuEntry {
    /// The whole block, from `menuentry` to its `}`.
    pub block: Range<usize>,
    /// Its title.
    pub title: String,
    /// The kernel's path.
    pub kernel: String,
    /// The parameters behind the kernel.
    pub range: Range<usize>,
    /// Line of the parameters, from 1.
    pub line: usize,
    /// A recovery entry.
    pub rescue: bool,
}

/// The Linux entries of grub.cfg, in its order, those of submenus among them.
pub fn entries(cfg: &[u8]) -> Vec<MenuEntry> {
    let mut found = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    let mut linux: Option<(String, Range<usize>, usize)> = None;
    for (at, line) in lines(cfg).enumerate() {
        let text = String::from_utf8_lossy(&cfg[line.clone()]).into_owned();
        let indent = text.len() - text.trim_start().len();
        let mut words = text.split_whitespace();
        match words.next() {
            Some("menuentry") => {
                open = Some((line.start, indent, title(&text)));
                linux = None;
            }
            Some("linux" | "linux16" | "linuxefi") if open.is_some() => {
                let kernel = words.next().unwrap_or("").to_owned();
                let after = text.find(&kernel).map_or(text.len(), |n| n + kernel.len());
                // Lossy text has the bytes' length only where it is UTF-8.
                if text.len() == line.len() {
                    linux = Some((kernel, line.start + after..line.end, at + 1));
                }
            }
            Some("}") => {
                let Some((start, of, title)) = open.take_if(|open| open.1 >= indent) else {
                    continue;
                };
                let _ = of;
                if let Some((kernel, range, at)) = linux.take() {
                    let rescue = is_rescue(&title, &words_of(&cfg[range.clone()]));
                    let block = start..line.end;
                    found.push(MenuEntry { block, title, kernel, range, line: at, rescue });
                }
            }
            _ => {}
        }
    }
    found
}

/// The Linux entries that GRUB's own scripts made for this system: not those of other systems on
/// its disks (os-prober), not those of the owner's hand. All of them where no script is named.
pub fn own_entries(cfg: &[u8]) -> Vec<MenuEntry> {
    let all = entries(cfg);
    let mut section = None;
    let mut own = Vec::new();
    for line in lines(cfg) {
        let text = String::from_utf8_lossy(&cfg[line.clone()]);
        if let Some(name) = text.strip_prefix("### BEGIN /etc/grub.d/") {
            let of_linux = name.starts_with("10_linux") || name.starts_with("20_linux");
            section = of_linux.then_some(line.start);
        } else if text.starts_with("### END /etc/grub.d/")
            && let Some(start) = section.take()
        {
            let section = start..line.start;
            own.extend(all.iter().filter(|entry| section.contains(&entry.block.start)).cloned());
        }
    }
    if own.is_empty() { all } else { own }
}

/// What a menu has to boot: its entries, kernels and initial disks in their order, without the parameters.
pub fn listed(cfg: &[u8]) -> Vec<String> {
    let of = |line: Range<usize>| {
        let text = String::from_utf8_lossy(&cfg[line]).trim().to_owned();
        let mut words = text.split_whitespace();
        match words.next()? {
            "menuentry" | "submenu" | "initrd" | "initrd16" | "initrdefi" => Some(text),
            "linux" | "linux16" | "linuxefi" => words.next().map(str::to_owned),
            _ => None,
        }
    };
    lines(cfg).filter_map(of).collect()
}

fn title(line: &str) -> String {
    let quote = line.find(['\'', '"']);
    let Some((start, mark)) = quote.and_then(|n| Some((n + 1, line[n..].chars().next()?))) else {
        return String::new();
    };
    line[start..].split(mark).next().unwrap_or("").to_owned()
}

/// The block for `custom.cfg` that boots a copy of an entry with our words.
pub fn trial_block(cfg: &[u8], entry: &MenuEntry, words: &[String]) -> String {
    let text = |range: Range<usize>| String::from_utf8_lossy(&cfg[range]).into_owned();
    let body_start = cfg[entry.block.clone()].iter().position(|b| *b == b'\n');
    let body_start = entry.block.start + body_start.map_or(0, |n| n + 1);
    let run: String = words.iter().map(|word| format!(" {word}")).collect();
    format!(
        "{BEGIN}\nmenuentry 'quietcores: one boot on trial' --id {TRIAL} {{\n{}{run}{}\n{END}\n",
        text(body_start..entry.range.end).trim_end(),
        text(entry.range.end..entry.block.end),
    )
}

const BEGIN: &str = "### BEGIN quietcores: written by `quietcores persist --trial` ###";
const END: &str = "### END quietcores ###";

/// A text without our block; `None` where it has none.
pub fn without_block(text: &[u8]) -> Option<Vec<u8>> {
    let all: Vec<Range<usize>> = lines(text).collect();
    let begin = all.iter().find(|line| &text[line.start..line.end] == BEGIN.as_bytes())?;
    let end = all
        .iter()
        .find(|line| line.start > begin.start && &text[line.start..line.end] == END.as_bytes())?;
    let mut new = text.to_vec();
    new.drain(begin.start..(end.end + 1).min(text.len()));
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CFG: &[u8] = b"set timeout=0\n\
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {\n\
\tload_video\n\
\tif [ x$a = x ]; then\n\
\t  search --set=root 1\n\
\tfi\n\
\tlinux\t/boot/vmlinuz-6.12 root=UUID=1 ro  quiet\n\
\tinitrd\t/boot/initrd.img-6.12\n\
}\n\
submenu 'Advanced options' {\n\
\tmenuentry 'Debian, with Linux 6.12 (recovery mode)' {\n\
\t\tlinux\t/boot/vmlinuz-6.12 root=UUID=1 ro single\n\
\t}\n\
}\n\
menuentry 'Firmware' {\n\
\tfwsetup\n\
}\n";

    #[test]
    fn the_generated_menu_is_read_with_its_submenus() {
        let found = entries(CFG);
        let seen: Vec<(&str, &str, usize, bool)> =
            found.iter().map(|e| (e.title.as_str(), e.kernel.as_str(), e.line, e.rescue)).collect();
        assert_eq!(
            seen,
            [
                ("Debian GNU/Linux", "/boot/vmlinuz-6.12", 7, false),
                ("Debian, with Linux 6.12 (recovery mode)", "/boot/vmlinuz-6.12", 12, true),
            ]
        );
        assert_eq!(words_of(&CFG[found[0].range.clone()]), ["root=UUID=1", "ro", "quiet"]);
    }

    #[test]
    fn what_a_menu_boots_is_told_without_its_parameters() {
        let text = String::from_utf8(CFG.to_vec()).unwrap();
        let with = text.replace("quiet", "quiet isolcpus=2-3").replace("timeout=0", "timeout=5");
        assert_eq!(listed(CFG), listed(with.as_bytes()));
        assert_eq!(listed(CFG).len(), 7);
        assert_ne!(listed(CFG), listed(text.replace("img-6.12", "img-6.13").as_bytes()));
        assert_ne!(listed(CFG), listed(text.replace("fwsetup", "linux /a").as_bytes()));
    }

    #[test]
    fn the_menu_is_made_in_a_file_of_ours() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(Into::into).collect() };
        let usual = "#!/bin/sh\nset -e\nexec grub-mkconfig -o /boot/grub/grub.cfg \"$@\"\n";
        for (command, program, wanted) in [
            ("/usr/sbin/update-grub", Some(usual), Some("/usr/sbin/update-grub -o /x")),
            ("/usr/sbin/update-grub", None, Some("/usr/sbin/update-grub -o /x")),
            ("/usr/sbin/update-grub", Some("grub-mkconfig -o /boot/grub/grub.cfg\n"), None),
            ("/usr/bin/grub2-mkconfig -o /boot/a", None, Some("/usr/bin/grub2-mkconfig -o /x")),
        ] {
            assert_eq!(aimed(&words(command), program, "/x"), wanted.map(words), "{command}");
        }
    }

    #[test]
    fn entries_of_other_systems_are_not_ours() {
        let other = "menuentry 'Fedora on /dev/sdb1' {\n\tlinux /vmlinuz-9 root=/dev/sdb1\n}\n";
        let cfg = [
            b"### BEGIN /etc/grub.d/10_linux ###\n",
            CFG,
            b"### END /etc/grub.d/10_linux ###\n### BEGIN /etc/grub.d/30_os-prober ###\n",
            other.as_bytes(),
            b"### END /etc/grub.d/30_os-prober ###\n",
        ]
        .concat();
        assert_eq!(entries(&cfg).len(), 3);
        assert_eq!(own_entries(&cfg).len(), 2);
        assert_eq!(own_entries(other.as_bytes()).len(), 1);
    }

    #[test]
    fn a_trial_is_a_copy_of_the_entry_with_our_words() {
        let block = trial_block(CFG, &entries(CFG)[0], &["isolcpus=2-3".into()]);
        assert!(block.contains("--id A-quietcores-trial {\n\tload_video\n"), "{block}");
        assert!(
            block.contains("ro  quiet isolcpus=2-3\n\tinitrd\t/boot/initrd.img-6.12\n}\n###"),
            "{block}"
        );
        let theirs = "menuentry 'mine' {\n}\n";
        let with = format!("{theirs}{block}");
        assert_eq!(without_block(with.as_bytes()).unwrap(), theirs.as_bytes());
        assert_eq!(without_block(theirs.as_bytes()), None);
    }

    #[test]
    fn the_drop_in_adds_and_the_shell_reads_it_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quietcores.cfg");
        let words = ["isolcpus=managed_irq,domain,2-3".to_owned(), "nosoftlockup".to_owned()];
        std::fs::write(&path, drop_in(&words)).unwrap();
        let script =
            format!("{VARIABLE}=\"quiet splash\"; . {}; echo \"${VARIABLE}\"", path.display());
        let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let expected = "quiet splash isolcpus=managed_irq,domain,2-3 nosoftlockup\n";
        assert_eq!(String::from_utf8(out.stdout).unwrap(), expected);
    }
}

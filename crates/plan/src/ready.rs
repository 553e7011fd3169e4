//! Chains that are ready-made, for programs whose threads have names: `ready:mpd`.

/// How the name of a ready-made chain begins wherever a chain file is taken.
pub const PREFIX: &str = "ready:";
/// The user for whom the files are written; another one takes that place.
const USER: &str = "\"ann\"";

/// By name, in the order of the alphabet. The same files are the examples of the project.
const CHAINS: [(&str, &str); 5] = [
    ("ardour", include_str!("../../../examples/chains/ardour.toml")),
    ("camilladsp", include_str!("../../../examples/chains/camilladsp.toml")),
    ("jackd", include_str!("../../../examples/chains/jackd.toml")),
    ("mpd", include_str!("../../../examples/chains/mpd.toml")),
    ("pipewire", include_str!("../../../examples/chains/pipewire.toml")),
];

/// The names of all ready-made chains.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHAINS.iter().map(|(name, _)| *name)
}

/// The text of the chain file that is called `name`, for the programs of user `uid`; `None` where there is none of that name.
pub fn text(name: &str, uid: u32) -> Option<String> {
    let (_, text) = CHAINS.iter().find(|(known, _)| *known == name)?;
    Some(text.replace(USER, &uid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chain, owner::is_thread};
    use quiet_types::chain::{Target, User};

    fn targets(name: &str) -> Vec<Target> {
        let chain = chain::parse(&text(name, 1000).unwrap(), name, None).unwrap();
        chain.links.into_iter().map(|link| link.target).collect()
    }

    #[test]
    fn every_one_is_understood_and_is_for_who_asks() {
        assert!(names().is_sorted());
        for name in names() {
            let users: Vec<User> = targets(name)
                .into_iter()
                .filter_map(|target| match target {
                    Target::Process { owner, .. } => Some(owner.users),
                    Target::Irq(_) => None,
                })
                .flatten()
                .collect();
            assert!(users.contains(&User::Uid(1000)), "{name}: {users:?}");
            assert!(!text(name, 1000).unwrap().contains(USER), "{name}");
        }
        assert_eq!(text("mpv", 1000), None);
    }

    /// Names as the programs give them (see the files), cut by the kernel; which of a program's links takes each.
    #[test]
    fn threads_have_their_links_by_their_real_names() {
        let taken = |name: &str, comm: &str, thread: &str| -> Vec<usize> {
            let is = |target: &Target, listed: bool| match target {
                Target::Process { comm: of, threads, .. } => {
                    let named = threads.iter().any(|wanted| is_thread(wanted, thread));
                    of == comm && if listed { named } else { threads.is_empty() }
                }
                Target::Irq(_) => false,
            };
            let targets = targets(name);
            let by = |listed| -> Vec<usize> {
                (0..targets.len()).filter(|at| is(&targets[*at], listed)).collect()
            };
            if by(true).is_empty() { by(false) } else { by(true) }
        };
        for (name, comm, thread, links) in [
            ("mpd", "mpd", "decoder:flac", &[0][..]),
            ("mpd", "mpd", "decoder", &[0]),
            ("mpd", "mpd", "player", &[0]),
            ("mpd", "mpd", "input:curl", &[0]),
            ("mpd", "mpd", "buffering", &[0]),
            ("mpd", "mpd", "io", &[0]),
            ("mpd", "mpd", "rtio", &[1]),
            ("mpd", "mpd", "output:USB DAC", &[1]),
            ("mpd", "mpd", "update", &[]),
            ("mpd", "mpd", "sticker", &[]),
            ("camilladsp", "camilladsp", "AlsaCapture", &[0]),
            ("camilladsp", "camilladsp", "AlsaCaptureInne", &[0]),
            ("camilladsp", "camilladsp", "FileCapture", &[0]),
            ("camilladsp", "camilladsp", "camilladsp", &[0]),
            ("camilladsp", "camilladsp", "AlsaPlayback", &[1]),
            ("camilladsp", "camilladsp", "AlsaPlaybackInn", &[1]),
            ("camilladsp", "camilladsp", "PipeWirePlaybac", &[1]),
            ("jackd", "jackd", "jackd", &[0]),
            ("ardour", "ArdourGUI", "RT-1-0x7f31c40c", &[1]),
            ("ardour", "ArdourGUI", "RT-main-0x7f31c", &[1]),
            ("ardour", "ArdourGUI", "AudioEngine 1", &[1]),
            ("ardour", "ArdourGUI", "AlsaMidiIO", &[1]),
            ("ardour", "ArdourGUI", "IO-0-0x7f31c40c", &[0]),
            ("ardour", "ArdourGUI", "ArdourGUI", &[0]),
            ("ardour", "ArdourGUI", "butler", &[0]),
            ("pipewire", "pipewire", "data-loop.0", &[1]),
            ("pipewire", "pipewire-pulse", "data-loop.0", &[0]),
            ("pipewire", "pipewire", "module-rt", &[]),
        ] {
            assert_eq!(taken(name, comm, thread), links, "{name}: {comm}, {thread}");
        }
    }
}

//! Which sound cards there are, and what they can do.

use super::{super::format::SampleFormat, half::alsa_format, said::hush};
use alsa::{
    Direction, PCM, card,
    ctl::{Ctl, DeviceIter},
    pcm::{Frames as AlsaFrames, HwParams},
};
use quiet_types::{
    Frames, SampleRate,
    said::{Abilities, PcmDevice},
};

/// Every device of every card.
pub fn list() -> Vec<PcmDevice> {
    hush();
    let mut found = Vec::new();
    for card in card::Iter::new().flatten() {
        let Ok(ctl) = Ctl::new(&format!("hw:{}", card.get_index()), false) else { continue };
        let id = ctl.card_info().ok().and_then(|info| info.get_id().ok().map(str::to_owned));
        let id = id.unwrap_or_else(|| card.get_index().to_string());
        for device in DeviceIter::new(&ctl) {
            let name = format!("hw:{id},{device}");
            found.push(PcmDevice {
                about: card.get_name().unwrap_or_default(),
                playback: abilities(&name, Direction::Playback),
                capture: abilities(&name, Direction::Capture),
                name,
            });
        }
    }
    found
}

fn abilities(name: &str, direction: Direction) -> Option<Abilities> {
    let pcm = PCM::new(name, direction, true).ok()?;
    let hw = HwParams::any(&pcm).ok()?;
    let _ = hw.set_rate_resample(false);
    let small =
        |n: alsa::Result<AlsaFrames>| Frames(u32::try_from(n.unwrap_or(0)).unwrap_or(u32::MAX));
    let rate = |n: alsa::Result<u32>| n.map(SampleRate).ok();
    let formats = SampleFormat::ALL.into_iter().filter(|f| hw.test_format(alsa_format(*f)).is_ok());
    Some(Abilities {
        formats: formats.map(|format| format.name().to_owned()).collect(),
        channels: (hw.get_channels_min().ok()?, hw.get_channels_max().ok()?),
        rates: (rate(hw.get_rate_min())?, rate(hw.get_rate_max())?),
        periods: (small(hw.get_period_size_min()), small(hw.get_period_size_max())),
        buffers: (small(hw.get_buffer_size_min()), small(hw.get_buffer_size_max())),
    })
}

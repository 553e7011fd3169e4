//! A boot loader's file in any form: words put in are found there, and taken out again leave every byte as it was.
#![no_main]
use libfuzzer_sys::fuzz_target;
use quiet_boot::form::{FileForm, add, parameters, remove, spots};

fuzz_target!(|bytes: &[u8]| {
    // The last byte chooses the form: what stands before it is a file as it lies on a disk.
    let Some((which, text)) = bytes.split_last() else { return };
    let form = match which % 7 {
        0 => FileForm::Bls,
        1 => FileForm::KernelCmdline,
        2 => FileForm::OneLine,
        3 => FileForm::Extlinux,
        4 => FileForm::Assignment { key: "extraargs".to_owned() },
        5 => FileForm::GrubEnv,
        _ => FileForm::ShellAppend { variable: "GRUB_CMDLINE_LINUX_DEFAULT".to_owned() },
    };
    let found = spots(&form, text);
    for spot in found.iter().flatten() {
        assert!(spot.range.end <= text.len() && spot.line >= 1);
    }
    let words = ["qcores=1", "qcores.list=2-3,5"].map(str::to_owned);
    let theirs = || parameters(&form, text).unwrap_or_default();
    if theirs().iter().any(|(word, _)| words.contains(word)) {
        return;
    }
    match add(&form, text, &words) {
        Ok(with) => {
            assert_ne!(with, text);
            let (without, count) =
                remove(&form, &with, &words).expect("what was edited can be edited");
            assert!(count >= words.len(), "{count} words found again");
            assert!(
                without == text,
                "{:?} became {:?}",
                text.escape_ascii().to_string(),
                without.escape_ascii().to_string()
            );
        }
        Err(why) => assert!(!why.is_empty()),
    }
});

//! Pages of the kernel's ring buffer, as `trace_pipe_raw` hands them out.

use super::format;

/// How a page is laid out: `events/header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the number behind the time stamp: 4 or 8.
    commit: usize,
    /// Where records begin.
    data: usize,
    /// The whole page.
    pub size: usize,
}

impl Layout {
    /// Reads the description; `None` where it is another one than this program knows.
    pub fn parse(text: &str) -> Option<Layout> {
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| format::field(line.trim()));
            fields.find(|(known, _)| known == name).map(|(_, field)| field)
        };
        let (time, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        let size = data.offset.checked_add(data.size)?;
        let known = time.offset == 0
            && time.size == 8
            && commit.offset == 8
            && matches!(commit.size, 4 | 8)
            && data.offset == 8 + commit.size
            && size <= 1 << 20;
        known.then_some(Layout { commit: commit.size, data: data.offset, size })
    }
}

/// What stands in a page, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEntry<'a> {
    /// So many events before this page are gone; zero where the kernel does not say how many.
    Lost(u64),
    /// A record, from its `common_type` on, and its time.
    Record(u64, &'a [u8]),
}

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Flags above the length in `commit`.
const MISSED: u64 = 1 << 31;
const STORED: u64 = 1 << 30;

/// The entries of a page. What makes no sense ends it.
///
/// # Source
/// `events/header_event`; kernel/trace/ring_buffer.c, "The ring buffer header is special" and
/// `ring_buffer_read_page`.
pub fn entries(layout: Layout, page: &[u8]) -> impl Iterator<Item = PageEntry<'_>> {
    let word = |at: usize| {
        let bytes = page.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|b| u32::from_ne_bytes(*b))
    };
    let long = |at: usize| {
        let bytes = page.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|b| u64::from_ne_bytes(*b))
    };
    let mut time = long(0).unwrap_or(0);
    let commit = match layout.commit {
        4 => word(8).map(u64::from),
        _ => long(8),
    }
    .unwrap_or(0);
    let end = (layout.data + (commit & (STORED - 1)) as usize).min(page.len());
    let mut lost = (commit & MISSED != 0).then(|| match commit & STORED {
        0 => 0,
        _ => long(end).unwrap_or(0),
    });
    let mut at = layout.data;
    std::iter::from_fn(move || {
        if let Some(count) = lost.take() {
            return Some(PageEntry::Lost(count));
        }
        while at + 4 <= end {
            let header = word(at)?;
            let (kind, delta) = if cfg!(target_endian = "little") {
                (header & 31, header >> 5)
            } else {
                (header >> 27, header & ((1 << 27) - 1))
            };
            match kind {
                TIME_EXTEND | TIME_STAMP => {
                    let high = u64::from(word(at + 4)?) << 27 | u64::from(delta);
                    time = if kind == TIME_EXTEND {
                        time.wrapping_add(high)
                    } else {
                        // The upper five bits do not fit and are those of the page.
                        time & !((1 << 59) - 1) | high
                    };
                    at += 8;
                }
                PADDING if delta == 0 => return None,
                PADDING => {
                    time = time.wrapping_add(delta.into());
                    at = at.checked_add(4 + word(at + 4)? as usize)?;
                }
                _ => {
                    time = time.wrapping_add(delta.into());
                    let (from, length) = match kind {
                        0 => (at + 8, (word(at + 4)? as usize).checked_sub(4)?),
                        words => (at + 4, words as usize * 4),
                    };
                    let to = from.checked_add(length)?;
                    at = to;
                    if to > end {
                        return None;
                    }
                    return Some(PageEntry::Record(time, &page[from..to]));
                }
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: Layout = Layout { commit: 8, data: 16, size: 4096 };

    fn header(kind: u32, delta: u32) -> [u8; 4] {
        if cfg!(target_endian = "little") {
            (delta << 5 | kind).to_ne_bytes()
        } else {
            (kind << 27 | delta).to_ne_bytes()
        }
    }

    fn page(parts: &[&[u8]], flags: u64) -> Vec<u8> {
        let data = parts.concat();
        let mut page = 1_000u64.to_ne_bytes().to_vec();
        page.extend((data.len() as u64 | flags).to_ne_bytes());
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    #[test]
    fn times_add_up_over_records_extensions_padding_and_absolute_stamps() {
        let page = page(
            &[
                &header(2, 5),
                &[1; 8],
                &header(TIME_EXTEND, 7),
                &1u32.to_ne_bytes(),
                &header(1, 1),
                &[2; 4],
                &header(PADDING, 3),
                &8u32.to_ne_bytes(),
                &[9; 4],
                &header(0, 2),
                &12u32.to_ne_bytes(),
                &[3; 8],
                &header(TIME_STAMP, 11),
                &2u32.to_ne_bytes(),
                &header(1, 1),
                &[4; 4],
                &header(PADDING, 0),
                &[0; 8],
            ],
            0,
        );
        let long = 1_000 + 5 + (1 << 27) + 7 + 1;
        let all: Vec<_> = entries(LAYOUT, &page).collect();
        assert_eq!(
            all,
            [
                PageEntry::Record(1_005, &[1; 8]),
                PageEntry::Record(long, &[2; 4]),
                PageEntry::Record(long + 5, &[3; 8]),
                PageEntry::Record((2 << 27) + 11 + 1, &[4; 4]),
            ]
        );
    }

    #[test]
    fn lost_events_are_told_with_their_number_where_it_is_stored() {
        let mut one = page(&[&header(1, 0), &[7; 4]], MISSED | STORED);
        one[24..32].copy_from_slice(&42u64.to_ne_bytes());
        assert_eq!(entries(LAYOUT, &one).next(), Some(PageEntry::Lost(42)));
        let one = page(&[&header(1, 0), &[7; 4]], MISSED);
        let all: Vec<_> = entries(LAYOUT, &one).collect();
        assert_eq!(all, [PageEntry::Lost(0), PageEntry::Record(1_000, &[7; 4])]);
    }

    #[test]
    fn the_layout_is_read_from_the_kernels_description() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(Layout::parse(text), Some(LAYOUT));
        assert_eq!(Layout::parse("nothing"), None);
    }

    proptest! {
        #[test]
        fn no_page_makes_it_fail_or_go_on_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let count = entries(LAYOUT, &bytes).count();
            prop_assert!(count <= bytes.len());
        }
    }
}

//! The kernel's description of an event's bytes: `events/GROUP/NAME/format`.

/// Where a field lies in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// First byte.
    pub offset: usize,
    /// Bytes; of a dynamic field, those of its locator.
    pub size: usize,
    /// Whether the bytes are a locator: length << 16 | offset.
    pub dynamic: bool,
}

/// The description of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLayout {
    /// What records of it begin with.
    pub id: u16,
    /// Fields by name; `next_comm[16]` is `next_comm`.
    fields: Vec<(String, Field)>,
}

impl RecordLayout {
    /// Reads a description; `None` where it has no id.
    ///
    /// # Source
    /// Documentation/trace/events.rst, "Event formats".
    pub fn parse(text: &str) -> Option<RecordLayout> {
        let mut format = RecordLayout::default();
        let mut id = None;
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if line.starts_with("field:") {
                format.fields.extend(field(line));
            }
        }
        format.id = id?;
        Some(format)
    }

    /// A field by its name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field)
    }
}

/// `field:__data_loc char[] name; offset:12; size:4; signed:0;`
pub(super) fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse().ok(),
            Some(("size", number)) => size = number.parse().ok(),
            _ => {}
        }
    }
    let dynamic = declared.starts_with("__data_loc");
    let name = declared.split_whitespace().last()?;
    let name = name.split('[').next()?.trim_start_matches('*').to_owned();
    Some((name, Field { offset: offset?, size: size?, dynamic }))
}

impl Field {
    /// The number in these bytes, of this machine's byte order; zero where the record is short.
    pub fn number(self, record: &[u8]) -> u64 {
        let bytes = record.get(self.offset..).unwrap_or_default();
        match self.size {
            1 => bytes.first().copied().map_or(0, u64::from),
            2 => bytes.first_chunk().map_or(0, |b| u16::from_ne_bytes(*b).into()),
            4 => bytes.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b).into()),
            8 => bytes.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b)),
            _ => 0,
        }
    }

    /// The bytes of this field, also of a dynamic one; empty where the record is short.
    pub fn bytes(self, record: &[u8]) -> &[u8] {
        let (offset, size) = if self.dynamic {
            let place = Field { dynamic: false, size: 4, ..self }.number(record);
            ((place & 0xffff) as usize, (place >> 16) as usize)
        } else {
            (self.offset, self.size)
        };
        record.get(offset..offset + size).unwrap_or_default()
    }

    /// The text up to its first zero.
    pub fn text(self, record: &[u8]) -> String {
        let bytes = self.bytes(record);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_read_in_their_size() {
        let text = "name: irq_handler_entry\nID: 225\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n\
            \tfield:char comm[4];\toffset:16;\tsize:4;\tsigned:0;\n\nprint fmt: \"\"\n";
        let format = RecordLayout::parse(text).unwrap();
        assert_eq!(format.id, 225);
        let mut record = vec![0u8; 24];
        record[8..12].copy_from_slice(&36i32.to_ne_bytes());
        record[12..16].copy_from_slice(&(4u32 << 16 | 20).to_ne_bytes());
        record[16..20].copy_from_slice(b"mpd\0");
        record[20..24].copy_from_slice(b"eth\0");
        assert_eq!(format.field("irq").unwrap().number(&record), 36);
        assert_eq!(format.field("name").unwrap().text(&record), "eth");
        assert_eq!(format.field("comm").unwrap().text(&record), "mpd");
        assert_eq!(format.field("nothing"), None);
        // A locator that leads out of the record.
        record[12..16].copy_from_slice(&(99u32 << 16 | 20).to_ne_bytes());
        assert_eq!(format.field("name").unwrap().text(&record), "");
        assert_eq!(RecordLayout::parse("name: x\n"), None);
    }
}

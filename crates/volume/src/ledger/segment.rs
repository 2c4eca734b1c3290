//! A segment: records, the windows of what they speak of, and a checksum that tells a torn one.

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

use crate::Window;

const MAGIC: [u8; 8] = *b"haloseg1";

/// Bytes in front of windows and records: the magic, the number of windows, that of records, and a checksum of all but the magic.
/// All is little-endian.
const HEADER: usize = 20;

/// What was stored of a tile. Little-endian, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Record {
    /// The tile's number, x innermost.
    pub tile: u32,
    /// The checksum of its stored objects, see [`checksum`].
    pub checksum: u32,
    /// Bytes of its stored objects.
    pub bytes: u64,
}

/// The checksum of a tile: CRC-32C over length and CRC-32C of each of its objects, in the order in which a tile lists them.
pub(crate) fn checksum(objects: &[(u64, u32)]) -> u32 {
    objects.iter().fold(0, |sum, (length, crc)| {
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &length.to_le_bytes()), &crc.to_le_bytes())
    })
}

pub(crate) fn encode(records: &[Record], windows: &[Window]) -> Bytes {
    let counts = [windows.len(), records.len()].map(|count| (count as u32).to_le_bytes()).concat();
    let mut words: Vec<u8> =
        windows.iter().flat_map(|window| [window.least, window.greatest].map(f64::to_le_bytes)).flatten().collect();
    words.extend(records.iter().flat_map(|record| {
        let mut bytes = [0; size_of::<Record>()];
        bytes[..4].copy_from_slice(&record.tile.to_le_bytes());
        bytes[4..8].copy_from_slice(&record.checksum.to_le_bytes());
        bytes[8..].copy_from_slice(&record.bytes.to_le_bytes());
        bytes
    }));
    let sum = crc32c::crc32c_append(crc32c::crc32c(&counts), &words);
    [&MAGIC[..], &counts, &sum.to_le_bytes(), &words].concat().into()
}

/// The records and their windows; `None` if the segment is torn.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Vec<Record>, Vec<Window>)> {
    let (header, words) = bytes.split_at_checked(HEADER)?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let [windows, records] = [number(8) as usize * size_of::<Window>(), number(12) as usize * size_of::<Record>()];
    let sum = crc32c::crc32c_append(crc32c::crc32c(&header[8..16]), words);
    if header[..8] != MAGIC || words.len() != windows + records || sum != number(16) {
        return None;
    }
    let (windows, records) = words.split_at(windows);
    let (windows, records) = (bytemuck::pod_collect_to_vec(windows), bytemuck::pod_collect_to_vec(records));
    Some(if cfg!(target_endian = "big") { swapped(records, windows) } else { (records, windows) })
}

fn swapped(mut records: Vec<Record>, mut windows: Vec<Window>) -> (Vec<Record>, Vec<Window>) {
    for Record { tile, checksum, bytes } in &mut records {
        (*tile, *checksum, *bytes) = (tile.swap_bytes(), checksum.swap_bytes(), bytes.swap_bytes());
    }
    let swap = |value: f64| f64::from_bits(value.to_bits().swap_bytes());
    for Window { least, greatest } in &mut windows {
        (*least, *greatest) = (swap(*least), swap(*greatest));
    }
    (records, windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_is_torn_anywhere_is_told() {
        let records: Vec<Record> = (0..5).map(|tile| Record { tile, checksum: 7 * tile, bytes: 1 << tile }).collect();
        let windows = vec![Window { least: -1.5, greatest: 3.0 }, Window::EMPTY];
        let whole = encode(&records, &windows);
        assert_eq!(decode(&whole), Some((records, windows)));
        assert_eq!(decode(&encode(&[], &[])), Some((Vec::new(), Vec::new())));
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length]), None, "{length}");
            let mut zeros = whole.to_vec();
            zeros[length..].fill(0);
            assert!(zeros == whole || decode(&zeros).is_none(), "{length}");
            let mut flipped = whole.to_vec();
            flipped[length] ^= 1;
            assert_eq!(decode(&flipped), None, "{length}");
        }
    }

    #[test]
    fn a_checksum_depends_on_every_object_and_their_order() {
        let sum = checksum(&[(3, 1), (4, 2)]);
        for other in [&[(4, 2), (3, 1)][..], &[(3, 1)], &[(3, 1), (4, 3)], &[(3, 1), (5, 2)], &[]] {
            assert_ne!(checksum(other), sum);
        }
    }
}

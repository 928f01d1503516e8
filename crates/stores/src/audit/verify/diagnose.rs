//! Which kind of tampering explains a record that does not fit? The chain says that something is wrong; the records
//! around the place mostly say what.

use super::fault::{Fault, FaultKind};
use crate::audit::digest::Digest;

/// How many records after the break are looked at.
pub(super) const AHEAD: usize = 512;

/// How many before it.
pub(super) const BEHIND: usize = 64;

#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) seq: i64,
    pub(super) hash: Option<Digest>,
    pub(super) body: Vec<u8>,
}

impl Suspect {
    /// Whether its stored hash is right for this place in the chain.
    fn belongs(&self, previous: &Digest, seq: u64) -> bool {
        self.hash == Some(Digest::of_entry(previous, seq, &self.body))
    }
}

/// Explains why `suspects[0]`, the record that stands where `next` belongs, does not fit. `behind` holds the hashes
/// before it, the last one last, beginning with the zero hash if it reaches back that far.
pub(super) fn diagnose(next: u64, behind: &[Digest], suspects: &[Suspect]) -> Fault {
    let Some(first) = suspects.first() else { return Fault::at(next, FaultKind::Removed) };
    match u64::try_from(first.seq) {
        Ok(seq) if seq == next => misfit(next, behind, suspects, first),
        Ok(seq) if seq > next => {
            match suspects.iter().position(|suspect| u64::try_from(suspect.seq) == Ok(next)) {
                Some(_) => Fault::at(next, FaultKind::Reordered { found_at: seq }),
                None => Fault::at(next, FaultKind::Removed).through(seq - 1),
            }
        }
        // A number that has been, or that no record can have.
        seq => Fault::at(seq.unwrap_or(0), FaultKind::Inserted),
    }
}

fn misfit(next: u64, behind: &[Digest], suspects: &[Suspect], first: &Suspect) -> Fault {
    let Some(last) = behind.last() else { return Fault::at(next, FaultKind::Changed) };
    let place = |offset: usize| next + offset as u64;

    // The right one stands further on.
    if let Some(offset) = suspects.iter().skip(1).position(|suspect| suspect.belongs(last, next)) {
        let offset = offset + 1;
        let previous = if offset == 1 { suspects[offset].hash } else { suspects[offset - 1].hash };
        let exchanged = previous.is_some_and(|previous| first.belongs(&previous, place(offset)));
        return if exchanged {
            Fault::at(next, FaultKind::Reordered { found_at: place(offset) })
        } else {
            Fault::at(next, FaultKind::Inserted).through(place(offset) - 1)
        };
    }
    // Bodies were exchanged and the hashes left where they were.
    if let Some(offset) = suspects
        .iter()
        .skip(1)
        .position(|suspect| first.hash == Some(Digest::of_entry(last, next, &suspect.body)))
    {
        return Fault::at(next, FaultKind::Reordered { found_at: place(offset + 1) });
    }
    // This one belongs further back: what was put before it fits the chain, but was not there when it was written.
    for (back, previous) in (0..next).zip(behind.iter().rev()).skip(1) {
        let seq = next - back;
        if first.belongs(previous, seq) {
            return Fault::at(seq, FaultKind::Inserted).through(next - 1);
        }
    }
    // The next one builds on this one, but both once had higher numbers.
    if let [_, second, ..] = suspects
        && let Some(hash) = &first.hash
        && !second.belongs(hash, next + 1)
    {
        for missing in 1..=BEHIND as u64 {
            if second.belongs(hash, next + 1 + missing) {
                return Fault::at(next, FaultKind::Removed).through(next + missing - 1);
            }
        }
    }
    Fault::at(next, FaultKind::Changed)
}

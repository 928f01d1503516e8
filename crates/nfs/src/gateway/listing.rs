//! Directories page by page. A cookie is a keyed hash of an entry's name and pages follow the order of hashes, so that a
//! cookie stays good whatever is made or removed in between: no entry that was there all the time is left out or told
//! twice.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
};

use aegis_routes::files::attached::{FileFacts, Identity, Listed};

/// `.` and `..` come first.
pub(super) const SELF: u64 = 1;
pub(super) const PARENT: u64 = 2;
/// Directories whose order is remembered between pages.
const REMEMBERED: usize = 8;
const MOST_REMEMBERED_NAMES: usize = 100_000;

/// The names of a directory by their cookies, ascending.
pub(super) type Order = Arc<Vec<(u64, Listed)>>;

/// A directory, when it was last changed, and the order of its names then.
type Remembered = (Identity, (i64, u32), Order);

#[derive(Debug, Default)]
pub(super) struct Listings {
    hasher: RandomState,
    recent: Mutex<VecDeque<Remembered>>,
}

impl Listings {
    pub(super) fn order(&self, names: Vec<Listed>) -> Order {
        let mut order: Vec<(u64, Listed)> =
            names.into_iter().map(|listed| (self.cookie(&listed.name), listed)).collect();
        order.sort_unstable_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
        // Equal hashes are next to impossible; a cookie must be one entry's all the same.
        let mut last = PARENT;
        for (cookie, _) in &mut order {
            *cookie = (*cookie).max(last + 1);
            last = *cookie;
        }
        Arc::new(order)
    }

    fn cookie(&self, name: &str) -> u64 {
        // Some clients take cookies for signed numbers.
        self.hasher.hash_one(name) >> 1
    }

    /// The order of a directory that has not changed since.
    pub(super) fn recall(&self, facts: &FileFacts) -> Option<Order> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let same = recent.iter().find(|(known, at, _)| *known == facts.identity && *at == facts.changed);
        same.map(|(_, _, order)| Arc::clone(order))
    }

    pub(super) fn remember(&self, facts: &FileFacts, order: &Order) {
        if order.len() > MOST_REMEMBERED_NAMES {
            return;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|(known, _, _)| *known != facts.identity);
        recent.push_front((facts.identity, facts.changed, Arc::clone(order)));
        recent.truncate(REMEMBERED);
    }
}

/// Where the page after a cookie begins.
pub(super) fn after(order: &Order, cookie: u64) -> usize {
    order.partition_point(|(at, _)| *at <= cookie)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn listed(names: impl IntoIterator<Item = String>) -> Vec<Listed> {
        names.into_iter().map(|name| Listed { name, number: 7 }).collect()
    }

    #[test]
    fn pages_survive_changes_in_between() {
        let listings = Listings::default();
        let mut names: BTreeSet<String> = (0..500).map(|n| format!("file {n}")).collect();
        let (mut seen, mut cookie) = (Vec::new(), PARENT);
        loop {
            let order = listings.order(listed(names.iter().cloned()));
            let page: Vec<_> = order[after(&order, cookie)..].iter().take(20).cloned().collect();
            let Some((last, _)) = page.last() else { break };
            cookie = *last;
            for (_, entry) in page {
                // As `rm -r` does it.
                names.remove(&entry.name);
                seen.push(entry.name);
            }
            names.insert(format!("new {}", seen.len()));
        }
        let old: Vec<&String> = seen.iter().filter(|name| name.starts_with("file")).collect();
        assert_eq!(old.len(), 500);
        assert_eq!(old.iter().collect::<BTreeSet<_>>().len(), 500);
    }
}

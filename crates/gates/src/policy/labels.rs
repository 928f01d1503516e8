//! What each session has read. A label that was once taken on is not lost while its session lives: not by a restart,
//! not by eviction. When there is no room to remember, every caller that is not known counts as having read it all.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    Caller, Timestamp,
    id::TenantId,
    label::{Label, TrustClass},
};
use aegis_stores::{
    Registry,
    registry::{LabelHolder, LabelRow, RegistryError},
};

/// Sessions and credentials whose labels are in memory.
const MOST_HOLDERS: usize = 100_000;
/// Classes and sources of one holder; what comes after counts under the source [`OTHERS`].
const MOST_ENTRIES: usize = 32;
const OTHERS: &str = "others";
/// Origins of one class and source. They are for people; what counts is the class.
const MOST_ORIGINS: usize = 16;
const LONGEST_ORIGIN: usize = 256;
/// Origins in all; when there are more, holders that were not seen lately keep their classes and lose these.
const ALL_ORIGINS: usize = 100_000;
/// Longer than any session can live unused.
pub const SESSION_MEMORY: Duration = Duration::from_secs(48 * 3600);

/// What a session has read so far, as far as rules look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SessionLabels {
    /// Sorted, each once.
    classes: Vec<TrustClass>,
    sources: BTreeSet<Cow<'static, str>>,
}

impl SessionLabels {
    pub fn of<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Self {
        let mut read = Self::default();
        labels.into_iter().for_each(|label| read.add(label.trust, label.source.clone()));
        read
    }

    pub fn classes(&self) -> &[TrustClass] {
        &self.classes
    }

    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(AsRef::as_ref)
    }

    fn everything() -> Self {
        let mut read = Self::default();
        let untrusted = TrustClass::ALL.into_iter().filter(|class| *class != TrustClass::ControlTrusted);
        untrusted.for_each(|class| read.add(class, OTHERS.into()));
        read
    }

    fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        other.classes.iter().for_each(|class| {
            if let Err(place) = both.classes.binary_search(class) {
                both.classes.insert(place, *class);
            }
        });
        both.sources.extend(other.sources.iter().cloned());
        both
    }

    fn add(&mut self, class: TrustClass, source: Cow<'static, str>) {
        if let Err(place) = self.classes.binary_search(&class) {
            self.classes.insert(place, class);
        }
        self.sources.insert(source);
    }
}

#[derive(Debug)]
pub struct LabelBook {
    pages: RwLock<Pages>,
    /// How long a credential without a session keeps its labels after the last of them.
    memory: Duration,
    kept: Kept,
    nothing: Arc<SessionLabels>,
}

#[derive(Debug)]
enum Kept {
    Nowhere,
    In(Registry),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holder {
    tenant: TenantId,
    who: LabelHolder,
}

#[derive(Debug, Default)]
struct Pages {
    by_holder: HashMap<Holder, Page>,
    origins: usize,
    /// What callers without a page count as having read, and until when, because there was no room for one.
    unknown: Option<(Arc<SessionLabels>, Timestamp)>,
}

#[derive(Debug)]
struct Page {
    labels: Arc<SessionLabels>,
    entries: Vec<Entry>,
    read: AtomicU64,
    touched: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    trust: TrustClass,
    source: Cow<'static, str>,
    origins: Vec<String>,
    /// When it was last written to the registry; 0 while it is not there.
    kept: AtomicU64,
}

impl LabelBook {
    /// One that a restart empties: for tests, and for decisions about calls that nobody makes.
    pub fn forgetful() -> Self {
        Self::new(Kept::Nowhere, Duration::from_secs(8 * 3600))
    }

    /// Takes up what the registry still knows.
    pub async fn open(registry: Registry, memory: Duration) -> Result<Self, RegistryError> {
        let rows = registry.labels(MOST_HOLDERS + 1).await?;
        let book = Self::new(Kept::In(registry), memory);
        book.take_up(rows);
        Ok(book)
    }

    fn new(kept: Kept, memory: Duration) -> Self {
        Self { pages: RwLock::default(), memory, kept, nothing: Arc::default() }
    }

    fn take_up(&self, rows: Vec<LabelRow>) {
        let now = Timestamp::now();
        let mut pages = self.write();
        if rows.len() > MOST_HOLDERS {
            pages.overflow(now.plus(SESSION_MEMORY));
        }
        for row in rows {
            let holder = Holder { tenant: row.tenant, who: row.holder };
            let read = row.expires.minus(self.lifetime(&holder)).millis().min(now.millis());
            let page = pages.by_holder.entry(holder).or_insert_with(|| Page::new(Timestamp::from_millis(0)));
            page.read.fetch_max(read, Ordering::Relaxed);
            page.touched.fetch_max(read, Ordering::Relaxed);
            let added = page.add(&row.label);
            page.entries[added.entry].kept.store(read.max(1), Ordering::Relaxed);
            pages.origins += usize::from(added.origin);
        }
    }

    /// What the caller's session has read.
    pub(super) fn of(&self, caller: &Caller) -> Arc<SessionLabels> {
        self.of_at(caller, Timestamp::now())
    }

    fn of_at(&self, caller: &Caller, now: Timestamp) -> Arc<SessionLabels> {
        let pages = self.read();
        if pages.by_holder.is_empty() && pages.unknown.is_none() {
            return Arc::clone(&self.nothing);
        }
        let own = self.living(&pages, &Holder::of(caller), now);
        // A session begins with what its credential has read outside of any.
        let before = caller.session.is_some().then(|| self.living(&pages, &Holder::credential(caller), now));
        match (own, before.flatten()) {
            (Some(own), Some(before)) if own != before => Arc::new(own.with(&before)),
            (Some(labels), _) | (None, Some(labels)) => labels,
            (None, None) => match &pages.unknown {
                Some((labels, until)) if now < *until => Arc::clone(labels),
                _ => Arc::clone(&self.nothing),
            },
        }
    }

    fn living(&self, pages: &Pages, holder: &Holder, now: Timestamp) -> Option<Arc<SessionLabels>> {
        let page = pages.by_holder.get(holder).filter(|page| self.lives(holder, page, now))?;
        page.touched.fetch_max(now.millis(), Ordering::Relaxed);
        Some(Arc::clone(&page.labels))
    }

    /// The same with where it came from, for people. Bounded.
    pub(super) fn read_by(&self, caller: &Caller) -> Vec<Label> {
        let holder = Holder::of(caller);
        let pages = self.read();
        let labels = |entry: &Entry| {
            let label = Label { trust: entry.trust, source: entry.source.clone(), origin: None };
            let each: Vec<Label> = entry.origins.iter().map(|origin| label.clone().from(origin)).collect();
            if each.is_empty() { vec![label] } else { each }
        };
        match pages.by_holder.get(&holder) {
            Some(page) if self.lives(&holder, page, Timestamp::now()) => {
                page.entries.iter().flat_map(labels).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes a label on. It counts from the moment this is called; once this has returned, also after a restart.
    pub(super) async fn observe(&self, caller: &Caller, label: &Label) -> Result<(), RegistryError> {
        self.observe_at(caller, label, Timestamp::now()).await
    }

    async fn observe_at(&self, caller: &Caller, label: &Label, now: Timestamp) -> Result<(), RegistryError> {
        // What the node itself says can't carry anybody's instructions.
        if label.trust == TrustClass::ControlTrusted {
            return Ok(());
        }
        let holder = Holder::of(caller);
        if self.is_known(&holder, label, now) || !self.note(&holder, label, now) {
            return Ok(());
        }
        if let Kept::In(registry) = &self.kept {
            let lifetime = self.lifetime(&holder);
            let row = LabelRow {
                tenant: holder.tenant.clone(),
                holder: holder.who.clone(),
                label: clipped(label),
                expires: now.plus(lifetime + lifetime / 8),
            };
            registry.keep_label(row).await?;
        }
        if let Some(entry) = self.read().by_holder.get(&holder).and_then(|page| page.entry(label)) {
            entry.kept.fetch_max(now.millis().max(1), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether nothing about this label is new: the usual case, for which a shared lock is enough.
    fn is_known(&self, holder: &Holder, label: &Label, now: Timestamp) -> bool {
        let pages = self.read();
        let Some(page) = pages.by_holder.get(holder) else { return false };
        let Some(entry) = page.entry(label) else { return false };
        let known = self.lives(holder, page, now)
            && !self.is_due(holder, entry, now)
            && entry.origins_hold(label.origin.as_deref());
        if known {
            page.read.fetch_max(now.millis(), Ordering::Relaxed);
            page.touched.fetch_max(now.millis(), Ordering::Relaxed);
        }
        known
    }

    /// Puts the label on the holder's page. True when it must be written down.
    fn note(&self, holder: &Holder, label: &Label, now: Timestamp) -> bool {
        let mut pages = self.write();
        if !pages.by_holder.contains_key(holder) && pages.by_holder.len() >= MOST_HOLDERS {
            pages.by_holder.retain(|holder, page| self.lives(holder, page, now));
            pages.origins = pages.by_holder.values().map(Page::origins).sum();
        }
        if pages.unknown.as_ref().is_some_and(|(_, until)| *until <= now) {
            pages.unknown = None;
        }
        if !pages.by_holder.contains_key(holder) && pages.by_holder.len() >= MOST_HOLDERS {
            pages.overflow(now.plus(SESSION_MEMORY.max(self.memory)));
            return true;
        }
        let page = pages.by_holder.entry(holder.clone()).or_insert_with(|| Page::new(now));
        if !self.lives(holder, page, now) {
            *page = Page::new(now);
        }
        page.read.fetch_max(now.millis(), Ordering::Relaxed);
        page.touched.fetch_max(now.millis(), Ordering::Relaxed);
        let added = page.add(label);
        let due = self.is_due(holder, &page.entries[added.entry], now);
        pages.origins += usize::from(added.origin);
        if pages.origins > ALL_ORIGINS {
            pages.forget_origins();
        }
        due
    }

    fn lives(&self, holder: &Holder, page: &Page, now: Timestamp) -> bool {
        let since = match holder.who {
            LabelHolder::Session(_) => page.touched.load(Ordering::Relaxed),
            LabelHolder::Credential { .. } => page.read.load(Ordering::Relaxed),
        };
        now < Timestamp::from_millis(since).plus(self.lifetime(holder))
    }

    /// Whether the registry does not know of it yet, or would forget it too early.
    fn is_due(&self, holder: &Holder, entry: &Entry, now: Timestamp) -> bool {
        let kept = entry.kept.load(Ordering::Relaxed);
        kept == 0 || now >= Timestamp::from_millis(kept).plus(self.lifetime(holder) / 8)
    }

    fn lifetime(&self, holder: &Holder) -> Duration {
        match holder.who {
            LabelHolder::Session(_) => SESSION_MEMORY,
            LabelHolder::Credential { .. } => self.memory,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Pages> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Pages> {
        self.pages.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder {
    fn of(caller: &Caller) -> Self {
        let who = match &caller.session {
            Some(session) => LabelHolder::Session(session.clone()),
            None => return Self::credential(caller),
        };
        Self { tenant: caller.tenant.clone(), who }
    }

    fn credential(caller: &Caller) -> Self {
        let (credential, context) = (caller.credential.clone(), caller.context.clone());
        Self { tenant: caller.tenant.clone(), who: LabelHolder::Credential { credential, context } }
    }
}

impl Pages {
    fn overflow(&mut self, until: Timestamp) {
        if self.unknown.is_none() {
            tracing::warn!(
                "labels of more than {MOST_HOLDERS} sessions can't be remembered: until there is room, sessions that \
                 are not known count as having read untrusted content"
            );
        }
        self.unknown = Some((Arc::new(SessionLabels::everything()), until));
    }

    /// Drops the origins of the half of the holders that was not seen lately.
    fn forget_origins(&mut self) {
        let mut seen: Vec<u64> =
            self.by_holder.values().map(|page| page.touched.load(Ordering::Relaxed)).collect();
        let middle = seen.len() / 2;
        let (_, middle, _) = seen.select_nth_unstable(middle);
        let middle = *middle;
        for page in self.by_holder.values_mut() {
            if page.touched.load(Ordering::Relaxed) <= middle {
                page.entries.iter_mut().for_each(|entry| entry.origins = Vec::new());
            }
        }
        self.origins = self.by_holder.values().map(Page::origins).sum();
    }
}

/// Which entry a label went to, and whether its origin was new there.
struct Added {
    entry: usize,
    origin: bool,
}

impl Page {
    fn new(now: Timestamp) -> Self {
        Self {
            labels: Arc::default(),
            entries: Vec::new(),
            read: AtomicU64::new(now.millis()),
            touched: AtomicU64::new(now.millis()),
        }
    }

    fn origins(&self) -> usize {
        self.entries.iter().map(|entry| entry.origins.len()).sum()
    }

    fn place(&self, label: &Label) -> Option<usize> {
        let of = |source: &str| {
            self.entries.iter().position(|entry| entry.trust == label.trust && entry.source == source)
        };
        of(&label.source).or_else(|| if self.entries.len() >= MOST_ENTRIES { of(OTHERS) } else { None })
    }

    fn entry(&self, label: &Label) -> Option<&Entry> {
        self.place(label).map(|place| &self.entries[place])
    }

    fn add(&mut self, label: &Label) -> Added {
        let entry = self.place(label).unwrap_or_else(|| {
            let source =
                if self.entries.len() >= MOST_ENTRIES { OTHERS.into() } else { label.source.clone() };
            let mut labels = SessionLabels::clone(&self.labels);
            labels.add(label.trust, source.clone());
            self.labels = Arc::new(labels);
            self.entries.push(Entry {
                trust: label.trust,
                source,
                origins: Vec::new(),
                kept: AtomicU64::new(0),
            });
            self.entries.len() - 1
        });
        let there = &mut self.entries[entry];
        let origin = !there.origins_hold(label.origin.as_deref());
        if let (true, Some(text)) = (origin, &label.origin) {
            there.origins.push(clip(text).to_owned());
        }
        Added { entry, origin }
    }
}

impl Entry {
    /// Whether there is nothing to add: the origin is there, or there are enough.
    fn origins_hold(&self, origin: Option<&str>) -> bool {
        origin.is_none_or(|origin| {
            self.origins.len() >= MOST_ORIGINS || self.origins.iter().any(|known| known == clip(origin))
        })
    }
}

fn clip(origin: &str) -> &str {
    origin.char_indices().nth(LONGEST_ORIGIN).map_or(origin, |(end, _)| &origin[..end])
}

fn clipped(label: &Label) -> Label {
    Label { origin: label.origin.as_deref().map(|origin| clip(origin).to_owned()), ..label.clone() }
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;

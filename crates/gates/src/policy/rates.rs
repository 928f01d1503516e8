//! Budgets per principal and tool. A new connection, session or credential of the same user is no new budget.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aegis_core::{
    Caller, ToolSpec, Violation, ViolationKind,
    config::{Capability, RateLimit},
    id::{TenantId, UserId},
};

/// Entries are swept when the book has doubled since the last sweep.
const SWEEP_FLOOR: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RateKey {
    tenant: TenantId,
    user: UserId,
    tool: String,
}

impl RateKey {
    pub(super) fn new(caller: &Caller, tool: &ToolSpec) -> Self {
        Self { tenant: caller.tenant.clone(), user: caller.user.clone(), tool: tool.name.to_string() }
    }
}

/// What a capability allows of one tool to one user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    rate: Option<RateLimit>,
    concurrent: Option<u32>,
}

impl Budget {
    pub(super) fn of(capability: &Capability) -> Self {
        Self { rate: capability.rate_limit, concurrent: capability.max_concurrent }
    }

    fn is_unlimited(self) -> bool {
        self.rate.is_none() && self.concurrent.is_none()
    }
}

#[derive(Debug, Default)]
pub(super) struct RateBook {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    by_key: HashMap<RateKey, Page>,
    sweep_at: usize,
}

/// When the calls of one key were charged (oldest first), and how many are in work.
#[derive(Debug, Default)]
struct Page {
    charged: VecDeque<Instant>,
    in_work: u32,
    /// The longest window this page was charged under; older charges can't matter any more.
    window: Duration,
}

/// Why a budget refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Rate { limit: RateLimit, retry_after: Duration },
    Concurrent { most: u32 },
}

/// A call that is charged. Dropping it ends the call's share of `max_concurrent`; the rate stays charged.
#[derive(Debug)]
pub struct Charge {
    slot: Option<(Arc<RateBook>, RateKey)>,
}

impl Charge {
    pub(super) fn free() -> Self {
        Self { slot: None }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((book, key)) = self.slot.take()
            && let Some(page) = book.pages().by_key.get_mut(&key)
        {
            page.in_work = page.in_work.saturating_sub(1);
        }
    }
}

impl RateBook {
    /// Whether a charge would be taken now. Spends nothing.
    pub(super) fn peek(&self, key: &RateKey, budget: Budget) -> Result<(), Refused> {
        if budget.is_unlimited() {
            return Ok(());
        }
        let pages = self.pages();
        pages.by_key.get(key).map_or(Ok(()), |page| page.check(budget, Instant::now()))
    }

    pub(super) fn charge(book: &Arc<Self>, key: &RateKey, budget: Budget) -> Result<Charge, Refused> {
        if budget.is_unlimited() {
            return Ok(Charge::free());
        }
        let now = Instant::now();
        let mut pages = book.pages();
        pages.sweep(now);
        let page = pages.by_key.entry(key.clone()).or_default();
        page.check(budget, now)?;
        if let Some(limit) = budget.rate {
            page.window = page.window.max(window(limit));
            page.forget(now);
            page.charged.push_back(now);
        }
        page.in_work = page.in_work.saturating_add(1);
        Ok(Charge { slot: Some((Arc::clone(book), key.clone())) })
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn sweep(&mut self, now: Instant) {
        if self.by_key.len() < self.sweep_at.max(SWEEP_FLOOR) {
            return;
        }
        self.by_key.retain(|_, page| {
            page.forget(now);
            page.in_work > 0 || !page.charged.is_empty()
        });
        self.sweep_at = self.by_key.len() * 2;
    }
}

impl Page {
    fn check(&self, budget: Budget, now: Instant) -> Result<(), Refused> {
        if let Some(limit) = budget.rate {
            let window = window(limit);
            // Charges are in order, so the call that is `calls` back decides.
            let calls = limit.calls.max(1) as usize;
            let before = self.charged.len().checked_sub(calls).and_then(|index| self.charged.get(index));
            if let Some(since) = before.map(|at| now.duration_since(*at)).filter(|since| *since < window) {
                return Err(Refused::Rate { limit, retry_after: window.saturating_sub(since) });
            }
        }
        match budget.concurrent {
            Some(most) if self.in_work >= most => Err(Refused::Concurrent { most }),
            _ => Ok(()),
        }
    }

    fn forget(&mut self, now: Instant) {
        while self.charged.front().is_some_and(|at| now.duration_since(*at) >= self.window) {
            self.charged.pop_front();
        }
    }
}

fn window(limit: RateLimit) -> Duration {
    Duration::from_secs(u64::from(limit.per_seconds))
}

impl Refused {
    pub(super) fn violation(&self, tool: &ToolSpec, place: &str) -> Violation {
        match self {
            Self::Rate { limit, retry_after } => {
                let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
                Violation::new(
                    ViolationKind::RateLimitExceeded,
                    format!(
                        "`{}` may be called {} times in {} s, and that is used up",
                        tool.name, limit.calls, limit.per_seconds
                    ),
                )
                .rule(format!("{place}.rate_limit"))
                .hint(format!("try again in {seconds} s"))
                .retry_after(seconds)
            }
            Self::Concurrent { most } => Violation::new(
                ViolationKind::ConcurrentExecLimitExceeded,
                format!("{most} calls of `{}` are in work, which is the limit", tool.name),
            )
            .rule(format!("{place}.max_concurrent"))
            .hint("wait for one of them to end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> RateKey {
        RateKey { tenant: "local".into(), user: "ann".into(), tool: "fs.read".into() }
    }

    #[test]
    fn looking_spends_nothing_and_the_limit_holds() {
        let book = Arc::new(RateBook::default());
        let budget = Budget { rate: Some(RateLimit { calls: 3, per_seconds: 3600 }), concurrent: None };
        for _ in 0..3 {
            for _ in 0..10 {
                assert_eq!(book.peek(&key(), budget), Ok(()));
            }
            assert!(RateBook::charge(&book, &key(), budget).is_ok());
        }
        let refused = RateBook::charge(&book, &key(), budget).unwrap_err();
        assert!(
            matches!(refused, Refused::Rate { retry_after, .. } if retry_after <= Duration::from_secs(3600))
        );
        assert!(book.peek(&key(), budget).is_err());
        let other = RateKey { user: "bob".into(), ..key() };
        assert_eq!(book.peek(&other, budget), Ok(()));
    }

    #[test]
    fn a_slot_comes_back_when_the_charge_is_dropped() {
        let book = Arc::new(RateBook::default());
        let budget = Budget { rate: None, concurrent: Some(2) };
        let (one, two) = (RateBook::charge(&book, &key(), budget), RateBook::charge(&book, &key(), budget));
        assert!(one.is_ok() && two.is_ok());
        assert!(matches!(RateBook::charge(&book, &key(), budget), Err(Refused::Concurrent { most: 2 })));
        drop(one);
        assert!(RateBook::charge(&book, &key(), budget).is_ok());
    }

    #[test]
    fn racing_callers_share_one_budget() {
        let book = Arc::new(RateBook::default());
        let budget = Budget { rate: Some(RateLimit { calls: 50, per_seconds: 3600 }), concurrent: None };
        let taken: usize = std::thread::scope(|scope| {
            let work = || (0..100).filter(|_| RateBook::charge(&book, &key(), budget).is_ok()).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 50);
    }
}

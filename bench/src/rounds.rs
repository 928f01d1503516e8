//! Taking turns. Each round measures every contender once; the order is turned round each time, so that a machine that
//! slows down or speeds up during the run favours none of them.

use std::time::Duration;

use crate::interrupt;

/// One contender: measures itself and gives a figure, e.g. calls per second.
pub(crate) type Contender<'a> = Box<dyn FnMut() -> anyhow::Result<f64> + 'a>;

/// The figures of each contender, by round.
#[derive(Debug)]
pub(crate) struct Rounds {
    figures: Vec<Vec<f64>>,
}

/// A ratio over all rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Rounds {
    /// Figures that came along with others, round by round.
    pub(crate) fn of(figures: Vec<Vec<f64>>) -> Self {
        Self { figures }
    }

    /// One round that is thrown away, then `rounds` that count.
    pub(crate) fn take(rounds: usize, mut contenders: Vec<Contender<'_>>) -> anyhow::Result<Self> {
        for contender in &mut contenders {
            contender()?;
        }
        let mut figures = vec![Vec::with_capacity(rounds); contenders.len()];
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                interrupt::check()?;
                figures[index].push(contenders[index]()?);
            }
        }
        Ok(Self { figures })
    }

    pub(crate) fn median(&self, contender: usize) -> f64 {
        median(self.figures[contender].clone())
    }

    /// How `one` stands to `other`: compared within each round, then the median of the rounds.
    pub(crate) fn ratio(&self, one: usize, other: usize) -> Spread {
        let ratios: Vec<f64> =
            self.figures[one].iter().zip(&self.figures[other]).map(|(one, other)| one / other).collect();
        Spread {
            low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            high: ratios.iter().copied().fold(0.0, f64::max),
            median: median(ratios),
        }
    }
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        _ if figures.is_empty() => f64::NAN,
        0 => f64::midpoint(figures[middle - 1], figures[middle]),
        _ => figures[middle],
    }
}

/// The time below which `share` of the calls stayed.
pub(crate) fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into the slice")]
    let index = ((times.len() as f64) * share) as usize;
    times.get(index.min(last)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn rounds_turn_the_order_and_pair_the_figures() {
        let order = RefCell::new(Vec::new());
        let contender = |name: char, figures: [f64; 4]| -> Contender<'_> {
            let mut figures = figures.into_iter();
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok(figures.next().unwrap())
            })
        };
        // The machine halves its speed in the last round: the ratio does not show it.
        let rounds = Rounds::take(
            3,
            vec![contender('a', [9.0, 10.0, 20.0, 5.0]), contender('b', [1.0, 20.0, 40.0, 10.0])],
        )
        .unwrap();
        let ratio = rounds.ratio(0, 1);
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
        assert_eq!(rounds.median(0), 10.0);
        assert_eq!(order.into_inner(), ['a', 'b', 'a', 'b', 'b', 'a', 'a', 'b']);
    }

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut times, 0.5), Duration::from_millis(51));
        assert_eq!(percentile(&mut times, 0.99), Duration::from_millis(100));
    }
}

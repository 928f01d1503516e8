//! What an envelope costs when few sessions are live and when many are, another one at each call.

use crate::{
    rounds::{Contender, Rounds},
    seal_gate::Gate,
    table::{Figure, Goal, Row, time, whole},
    words::Random,
    workplace::Workplace,
};

pub(super) const NAME: &str = "seal-sessions";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let most = usize::try_from(place.scaled(100_000, 10_000))?;
    let count = usize::try_from(place.scaled(4000, 500))?;
    let sizes = [10, 1000, most];
    let mut gates = Vec::new();
    for size in sizes {
        let mut gate = Gate::with(size)?;
        // The first envelope of a session is dearer than those after it.
        let tokens = std::mem::take(&mut gate.tokens);
        for some in tokens.chunks(1000) {
            let envelopes = some.iter().map(|token| gate.sign(token)).collect::<anyhow::Result<Vec<_>>>()?;
            gate.verify(&envelopes)?;
        }
        gates.push((gate, tokens));
    }
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for (index, (gate, tokens)) in gates.iter_mut().enumerate() {
        let mut random = Random::new(index as u64);
        contenders.push(Box::new(move || {
            let mut envelopes = Vec::with_capacity(count);
            for _ in 0..count {
                envelopes.push(gate.sign(&tokens[random.below(tokens.len())])?);
            }
            gate.verify(&envelopes)
        }));
    }
    let seconds = Rounds::take(place.rounds(), contenders)?;
    let row = |contender: usize| Row {
        case: NAME,
        what: format!(
            "cost of an envelope, {} sessions live against {} (lower is better)",
            whole(sizes[contender] as f64),
            sizes[0]
        ),
        ours: time(seconds.median(contender)),
        yardstick: time(seconds.median(0)),
        figure: Figure::Ratio(seconds.ratio(contender, 0)),
        goal: Goal::AtMost(1.1),
    };
    Ok(vec![row(1), row(2)])
}

//! `aegis policy replay` over very many recorded calls, against a bare loop of Cedar's `is_authorized` over the same
//! requests, which are made beforehand: no log, no labels, no contexts, no report.

use std::{
    collections::{HashMap, HashSet},
    fs,
    process::Command,
    time::Instant,
};

use aegis_core::record::Entry;
use anyhow::{Context as _, bail};
use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PolicySet, Request, RestrictedExpression,
};
use serde_json::Value;

use crate::{
    node::command_line,
    process,
    records::Records,
    rounds::Rounds,
    table::{Figure, Goal, Row, per_second, whole},
    workplace::Workplace,
};

pub(super) const NAME: &str = "policy-replay";

/// Rules that look at every one of the calls and stop none.
const RULES: usize = 5;
/// Requests that the yardstick holds in memory and goes round.
const REQUESTS: usize = 20_000;

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let count = place.record_count();
    let data = place.many_records()?.data();
    let policies = place.path().join("replayed-policies");
    fs::create_dir(&policies)?;
    fs::write(policies.join("bench.cedar"), rules())?;
    let bare = Bare::new(count)?;
    let rates = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| {
                let mut command = command_line(place, &data);
                replay(command.args(["policy", "replay", "--policies"]).arg(&policies), count)
            }),
            Box::new(|| bare.decide(count)),
        ],
    )?;
    fs::remove_dir_all(&policies)?;
    Ok(vec![Row {
        case: NAME,
        what: format!(
            "{} recorded calls, {RULES} policies, against a bare is_authorized loop",
            whole(count as f64)
        ),
        ours: per_second(rates.median(0), "calls"),
        yardstick: per_second(rates.median(1), "calls"),
        figure: Figure::Ratio(rates.ratio(0, 1)),
        goal: Goal::AtLeast(0.5),
    }])
}

fn rules() -> String {
    let rule = |number: usize| {
        format!(
            "@id(\"bench-{number}\")\nforbid (principal, action == Action::\"fs.read\", resource)\n\
             when {{ context.arguments.path like \"/workspace/forbidden-{number}/*\" && principal.user != \"root\" }};\n"
        )
    };
    (0..RULES).map(rule).collect()
}

fn replay(command: &mut Command, count: u64) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let said = process::output(command)?;
    let seconds = begun.elapsed().as_secs_f64();
    let report: Value = serde_json::from_slice(&said)
        .with_context(|| format!("no report: {}", String::from_utf8_lossy(&said)))?;
    if report["unchanged"] != count {
        bail!("not all of {count} calls were decided again: {report}");
    }
    Ok(count as f64 / seconds)
}

/// What is left when there is nothing but Cedar.
struct Bare {
    policies: PolicySet,
    requests: Vec<(Request, usize)>,
    /// By user.
    entities: Vec<Entities>,
}

impl Bare {
    fn new(count: u64) -> anyhow::Result<Self> {
        let mut records = Records::new(count);
        let mut users: HashMap<String, usize> = HashMap::new();
        let mut entities = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..REQUESTS.min(usize::try_from(count)?) {
            let Entry::Call(call) = records.record() else { continue };
            let user = call.caller.user.to_string();
            let uid: EntityUid = format!("Caller::\"local/{user}\"").parse()?;
            let index = match users.get(&user) {
                Some(index) => *index,
                None => {
                    let attributes = HashMap::from([("user".to_owned(), text(&user))]);
                    let caller = Entity::new(uid.clone(), attributes, HashSet::new())?;
                    entities.push(Entities::from_entities([caller], None)?);
                    users.insert(user, entities.len() - 1);
                    entities.len() - 1
                }
            };
            let path = call.arguments["path"].as_str().unwrap_or_default();
            let arguments = RestrictedExpression::new_record([("path".to_owned(), text(path))])?;
            let context = Context::from_pairs([("arguments".to_owned(), arguments)])?;
            let request = Request::new(
                uid,
                "Action::\"fs.read\"".parse()?,
                "Tool::\"fs.read\"".parse()?,
                context,
                None,
            )?;
            requests.push((request, index));
        }
        Ok(Self { policies: rules().parse()?, requests, entities })
    }

    fn decide(&self, count: u64) -> anyhow::Result<f64> {
        let authorizer = Authorizer::new();
        let begun = Instant::now();
        let mut denied = 0_u64;
        for (request, user) in self.requests.iter().cycle().take(usize::try_from(count)?) {
            let response = authorizer.is_authorized(request, &self.policies, &self.entities[*user]);
            denied += u64::from(response.decision() == Decision::Deny);
        }
        let seconds = begun.elapsed().as_secs_f64();
        if denied != count {
            bail!("{denied} of {count} were denied, and no policy permits anything");
        }
        Ok(count as f64 / seconds)
    }
}

fn text(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

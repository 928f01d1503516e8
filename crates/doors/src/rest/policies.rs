//! `/v1/policies`: the rules in force, and what they would say of a call.

use std::{collections::HashMap, sync::Arc};

use aegis_core::{
    Call, Caller, Door, Label, Tier, Timestamp, TrustClass, Violation, ViolationKind, caller::AGENT_USER,
    config::security_context::OPERATOR_CONTEXT, nearest::suggestion,
};
use aegis_gates::policy::{Circumstances, SessionLabels};
use aegis_plane::explain::explain;
use axum::{Json, body::Bytes, extract::State, http::HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    Doors,
    guard::{self, Refused},
    wire,
};

const MOST_LABELS: usize = 32;

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let rules = doors.plane.policy().rules();
    let mut tools: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut count = 0;
    let catalog = doors.plane.catalog().specs();
    for tool in &catalog {
        count += 1;
        for rule in rules.about(&tool.name) {
            tools.entry(&rule.id).or_default().push(&tool.name);
        }
    }
    let listed: Vec<Value> = rules
        .list()
        .iter()
        .map(|rule| {
            let of = tools.get(rule.id.as_str()).map(Vec::as_slice).unwrap_or_default();
            let mut listed = json!(rule);
            listed["place"] = rule.place().into();
            listed["all_tools"] = (of.len() == count).into();
            listed["tools"] = json!(of);
            listed
        })
        .collect();
    Ok(Json(json!({
        "version": rules.version(),
        "label_rules": rules.label_rules(),
        "rules": listed,
        "refused": doors.plane.policy().refused_rules().map(|error| {
            json!({"error": error.to_string(), "problems": error.problems()})
        }),
    })))
}

/// A call that nobody makes, and who would make it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    context: Option<String>,
    tier: Option<Tier>,
    tenant: Option<String>,
    user: Option<String>,
    /// `EXTERNAL_UNTRUSTED`, or with the kind of place it came from, `EXTERNAL_UNTRUSTED:remote-http`.
    #[serde(default)]
    having: Vec<String>,
}

pub(super) async fn explain_call(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let wanted: Wanted = wire::read(&body)?;
    let labels = labels(&wanted.having)?;
    let caller = caller(&doors, &operator, &wanted)?;
    let call = Call::new(wanted.tool, wanted.arguments);
    let labels = Arc::new(SessionLabels::of(&labels));
    let circumstances = Circumstances { labels: &labels, now: Timestamp::now(), hidden: &[] };
    let mut told = json!(explain(&doors.plane, &caller, &call, &circumstances));
    told["caller"] = json!({
        "tenant": caller.tenant,
        "user": caller.user,
        "tier": caller.tier,
        "context": caller.context,
    });
    told["having"] = json!(wanted.having);
    Ok(Json(told))
}

fn caller(doors: &Doors, operator: &Caller, wanted: &Wanted) -> Result<Caller, Violation> {
    let context = wanted.context.as_deref().unwrap_or(OPERATOR_CONTEXT);
    doors.plane.policy().contexts().named(context)?;
    // As a call of the same words would be made.
    let (user, usual) = match context {
        OPERATOR_CONTEXT => (operator.user.clone(), Tier::Operator),
        _ => (AGENT_USER.into(), Tier::User),
    };
    Ok(Caller {
        tenant: wanted.tenant.as_deref().map_or_else(|| operator.tenant.clone(), Into::into),
        user: wanted.user.as_deref().map_or(user, Into::into),
        tier: wanted.tier.unwrap_or(usual),
        context: context.into(),
        credential: "explained".into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    })
}

fn labels(having: &[String]) -> Result<Vec<Label>, Violation> {
    let malformed = |message: String| Violation::new(ViolationKind::MalformedRequest, message);
    if having.len() > MOST_LABELS {
        return Err(malformed(format!("at most {MOST_LABELS} labels")));
    }
    let label = |text: &String| {
        let (class, source) = text.split_once(':').unwrap_or((text, "unknown"));
        let known = || TrustClass::ALL.into_iter().map(TrustClass::as_str);
        let trust = TrustClass::ALL.into_iter().find(|known| known.as_str() == class).ok_or_else(|| {
            malformed(format!("`{class}` is no label{}", suggestion(class, known())))
                .hint(format!("the labels are {}", known().collect::<Vec<_>>().join(", ")))
        })?;
        Ok(Label { trust, source: source.to_owned().into(), origin: None })
    };
    having.iter().map(label).collect()
}

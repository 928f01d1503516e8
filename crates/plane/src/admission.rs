//! A call that the gates let through, held still. It can be kept and performed later; nothing has happened yet.

use std::{sync::Arc, time::Instant};

use aegis_core::{Ask, Caller, GateVerdict, ToolSpec, TrustClass, id::CallId};
use aegis_gates::policy::Granted;
use serde_json::{Map, Value};

/// Everything needed to carry a call out, bound to the caller, the tool and the exact arguments that were decided on.
#[derive(Debug, Clone)]
pub struct Admission {
    pub(crate) call: CallId,
    pub(crate) caller: Caller,
    pub(crate) tool: Arc<ToolSpec>,
    pub(crate) asked_as: Option<String>,
    /// Validated: defaults filled, numbers clamped.
    pub(crate) arguments: Map<String, Value>,
    pub(crate) verdicts: Vec<GateVerdict>,
    pub(crate) granted: Granted,
    /// Why a person must agree first; empty when nobody has to.
    pub(crate) asks: Vec<Ask>,
    /// What the session had read when it was decided.
    pub(crate) labels: Vec<TrustClass>,
    /// The version of the rules that decided.
    pub(crate) version: String,
    pub(crate) decided: Instant,
}

impl Admission {
    pub fn call(&self) -> CallId {
        self.call
    }

    pub fn tool(&self) -> &ToolSpec {
        &self.tool
    }
}

//! `POST /v1/seal/invoke`: one signed message, one answer.

use std::sync::Arc;

use aegis_core::{
    Call,
    call::{Proof, hex},
};
use aegis_gates::identity::seal::{Request as Asked, Verified, seal_code};
use axum::{
    extract::{Request, State},
    response::Response,
};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::{Entrance, answers, claimed, refusals::ENVELOPE, tools};

/// Nobody has shown a credential before the whole envelope was read, so it is kept smaller than what others may send.
const LARGEST: usize = 4 << 20;
/// The protocol's number for an envelope that can't be read.
const MALFORMED: u16 = 1000;

pub(super) async fn invoke(State(entrance): State<Arc<Entrance>>, request: Request) -> Response {
    let doors = &entrance.doors;
    let limit = usize::try_from(doors.network.max_body.0).unwrap_or(usize::MAX).min(LARGEST);
    let patience = doors.network.body_timeout.0;
    let whole = entrance.bodies.whole(request.into_body(), limit, "the size of an envelope", patience).await;
    let whole = match whole {
        Ok(whole) => whole,
        Err(refused) => {
            entrance.refusals.take(doors, ENVELOPE, &refused.violation, Map::new()).await;
            let code = Some(MALFORMED);
            return match refused.status {
                Some(status) => answers::refusal_with_status(&refused.violation, status, code, None),
                None => answers::refusal(&refused.violation, code, None),
            };
        }
    };
    let verified = doors.identity.seal().verify(&whole.bytes).await;
    drop(whole);
    match verified {
        Ok(verified) => carry_out(&entrance, verified).await,
        Err(refusal) => {
            entrance.refusals.take(doors, ENVELOPE, &refusal.violation, claimed(&refusal)).await;
            answers::refusal(&refusal.violation, refusal.seal_code, refusal.id.as_deref())
        }
    }
}

/// From here on the caller is known, and what becomes of the call is the plane's to record. Only the inner message goes
/// on: token and signature stay here, but for the proof in the record.
async fn carry_out(entrance: &Entrance, verified: Verified) -> Response {
    let Verified { caller, id, request, digest, signature, .. } = verified;
    let plane = &entrance.doors.plane;
    match request {
        Asked::List => answers::listed(&id, &tools::for_model(plane, &caller)),
        Asked::Call { tool, arguments } => {
            let proof = Proof { message_sha256: hex(&digest), signature };
            let cancel = CancellationToken::new();
            let _gone = cancel.clone().drop_guard();
            let reply = plane.call(caller, Call::new(tool, arguments).signed(proof), cancel).await;
            match &reply.result {
                Ok(done) => answers::done(&id, reply.call, done),
                Err(violation) => answers::refusal(violation, seal_code(violation.kind), Some(&id)),
            }
        }
    }
}

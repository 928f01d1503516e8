//! Requests that the server answers with questions first.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    client::{Client, Request},
    error::Error,
    message::push_string,
    shared::empty_object,
};

/// How often one request may come back with questions.
pub const MOST_ROUNDS: usize = 8;
const MOST_QUESTIONS: usize = 16;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asking<'a> {
    #[serde(default)]
    result_type: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    input_requests: BTreeMap<String, &'a RawValue>,
    #[serde(borrow, default)]
    request_state: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Question<'a> {
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl Client {
    /// As [`Client::request`]; questions that come as a result (`input_required`) go to the request's `questions`,
    /// and their answers back with the same request.
    pub async fn request_answering(&self, request: Request<'_>) -> Result<Box<RawValue>, Error> {
        let Some(questions) = request.questions.clone() else { return self.request(request).await };
        let mut params: Option<Box<RawValue>> = None;
        for _ in 0..MOST_ROUNDS {
            let mut asked = request.clone();
            asked.params = params.as_deref().or(request.params);
            let result = self.request(asked).await?;
            if !self.version().stateless() || !result.get().contains("input_required") {
                return Ok(result);
            }
            let Ok(read) = serde_json::from_str::<Asking<'_>>(result.get()) else { return Ok(result) };
            if read.result_type.as_deref() != Some("input_required") {
                return Ok(result);
            }
            if read.input_requests.len() > MOST_QUESTIONS {
                return Err(Error::protocol("it asks too much at once"));
            }
            let mut answers = String::from("{");
            for (key, question) in &read.input_requests {
                let question: Question<'_> = serde_json::from_str(question.get())
                    .map_err(|error| Error::protocol(format!("a question of its: {error}")))?;
                let answer = Arc::clone(&questions);
                let answer = answer.asked(&question.method, question.params).await.map_err(Error::Rpc)?;
                if answers.len() > 1 {
                    answers.push(',');
                }
                push_string(&mut answers, key);
                answers.push(':');
                answers.push_str(answer.get());
            }
            answers.push('}');
            let again = again(request.params, &answers, read.request_state);
            params = Some(again?);
        }
        Err(Error::NeverSatisfied(MOST_ROUNDS))
    }
}

/// The parameters as they were, with the answers and the server's own note to itself.
fn again(params: Option<&RawValue>, answers: &str, state: Option<&RawValue>) -> Result<Box<RawValue>, Error> {
    let first = params.map_or_else(empty_object, ToOwned::to_owned);
    let rest = first.get().trim().strip_prefix('{').unwrap_or("}").trim_start();
    let state = state.map(|state| format!(r#""requestState":{},"#, state.get())).unwrap_or_default();
    let comma = if rest == "}" { "" } else { "," };
    let text = format!(r#"{{{state}"inputResponses":{answers}{comma}{rest}"#);
    RawValue::from_string(text).map_err(|error| Error::protocol(format!("answers can't be written: {error}")))
}

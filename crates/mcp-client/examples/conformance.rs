//! The client of the MCP conformance suite's client mode: does what each scenario wants of a client, with nothing but
//! this crate. The suite starts it with the address of its server as the last argument, the scenario's name in
//! `MCP_CONFORMANCE_SCENARIO`, and what else there is to know as JSON in `MCP_CONFORMANCE_CONTEXT`.

#![allow(clippy::print_stderr, reason = "a program for the terminal")]

use std::{env, process::ExitCode, sync::Arc};

use aegis_mcp_client::{
    Client, Endpoint, Error, Handler, Http, Identity, Limits, Listed, Preference, Request, RpcError, Version,
    http::{Body, BoxError, header_parameters, parameter_headers},
    oauth::{Application, Browser, Known, SignIn},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, header::LOCATION};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client as Connections, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Map, Value, json, value::RawValue};
use url::Url;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failed> {
    let url = Url::parse(&env::args().next_back().unwrap_or_default())?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    let context: Value = match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => json!({}),
    };
    let client = connect(&url, &context).await?;
    match scenario.as_str() {
        "http-standard-headers" => everything(&client).await?,
        "http-custom-headers" => calls_of(&client, &context).await?,
        "json-schema-2020-12-preservation" => echo_schema(&client).await?,
        "auth/authorization-server-migration" => {
            for _ in 0..3 {
                every_tool(&client).await?;
            }
        }
        _ => every_tool(&client).await?,
    }
    client.close("done");
    Ok(())
}

async fn connect(url: &Url, context: &Value) -> Result<Client, Failed> {
    let way = Arc::new(Way(Connections::builder(TokioExecutor::new()).build_http()));
    let known = context["client_id"].as_str().map(|client_id| Known {
        client_id: client_id.to_owned(),
        secret: context["client_secret"].as_str().map(str::to_owned),
        issuer: context["issuer"].as_str().map(str::to_owned),
    });
    let application = Application {
        name: "aegis conformance client".to_owned(),
        redirect: Url::parse("http://127.0.0.1:14141/callback")?,
        document: Some(Url::parse("https://conformance-test.local/client-metadata.json")?),
        known,
    };
    let preference =
        match env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").ok().as_deref().and_then(Version::parse) {
            Some(version) if !version.stateless() => Preference::Handshake,
            _ => Preference::Any,
        };
    let endpoint = Endpoint {
        url: url.clone(),
        http: Arc::new(SignIn::new(url.clone(), Arc::clone(&way) as Arc<dyn Http>, way, application)),
        credentials: Arc::new(()),
        headers: Vec::new(),
        preference,
    };
    let abilities = json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}});
    let abilities = abilities.as_object().cloned().unwrap_or_default();
    let identity = Identity::new("aegis", env!("CARGO_PKG_VERSION"), &abilities);
    let handler: Arc<dyn Handler> = Arc::new(User);
    Ok(Client::connect(&endpoint, &identity, &Limits::default(), &handler).await?)
}

/// Lists the tools and calls each that can be called.
async fn every_tool(client: &Client) -> Result<(), Failed> {
    for tool in client.list(Listed::Tools).await? {
        let tool: Value = serde_json::from_str(tool.get())?;
        let arguments = arguments_for(&tool["inputSchema"]);
        call(client, &tool, &arguments).await?;
    }
    Ok(())
}

/// Every list, and one of each.
async fn everything(client: &Client) -> Result<(), Failed> {
    every_tool(client).await?;
    for resource in client.list(Listed::Resources).await?.into_iter().take(1) {
        let resource: Value = serde_json::from_str(resource.get())?;
        let uri = resource["uri"].as_str().unwrap_or_default();
        ask(client, "resources/read", &json!({"uri": uri}), uri, Vec::new()).await?;
    }
    for prompt in client.list(Listed::Prompts).await?.into_iter().take(1) {
        let prompt: Value = serde_json::from_str(prompt.get())?;
        let name = prompt["name"].as_str().unwrap_or_default();
        ask(client, "prompts/get", &json!({"name": name}), name, Vec::new()).await?;
    }
    Ok(())
}

/// The calls that the context names.
async fn calls_of(client: &Client, context: &Value) -> Result<(), Failed> {
    let tools: Vec<Value> = client
        .list(Listed::Tools)
        .await?
        .iter()
        .map(|tool| serde_json::from_str(tool.get()))
        .collect::<Result<_, _>>()?;
    for wanted in context["toolCalls"].as_array().into_iter().flatten() {
        let Some(tool) = tools.iter().find(|tool| tool["name"] == wanted["name"]) else { continue };
        call(client, tool, wanted["arguments"].as_object().unwrap_or(&Map::new())).await?;
    }
    Ok(())
}

/// Gives a schema back exactly as it came.
async fn echo_schema(client: &Client) -> Result<(), Failed> {
    let tools: Vec<Value> = client
        .list(Listed::Tools)
        .await?
        .iter()
        .map(|tool| serde_json::from_str(tool.get()))
        .collect::<Result<_, _>>()?;
    let find = |wanted: &str| tools.iter().find(|tool| tool["name"] == wanted);
    let (Some(rich), Some(echo)) = (find("json_schema_2020_12_tool"), find("json_schema_echo")) else {
        return Err("the tools are not there".into());
    };
    let arguments = json!({"schema": rich["inputSchema"]});
    call(client, echo, arguments.as_object().unwrap_or(&Map::new())).await
}

/// A tool whose definition asks for headers that can't be is left alone.
async fn call(client: &Client, tool: &Value, arguments: &Map<String, Value>) -> Result<(), Failed> {
    let name = tool["name"].as_str().unwrap_or_default();
    let parameters = match header_parameters(&tool["inputSchema"]) {
        Ok(parameters) => parameters,
        Err(mistake) => {
            eprintln!("{name}: {mistake}");
            return Ok(());
        }
    };
    let stateless = client.version().stateless();
    let headers = if stateless { parameter_headers(&parameters, arguments) } else { Vec::new() };
    ask(client, "tools/call", &json!({"name": name, "arguments": arguments}), name, headers).await
}

async fn ask(
    client: &Client,
    method: &str,
    params: &Value,
    name: &str,
    headers: Vec<(http::HeaderName, http::HeaderValue)>,
) -> Result<(), Failed> {
    let params = RawValue::from_string(params.to_string())?;
    let mut request = Request::new(method).params(&params).about(name);
    request.headers = headers;
    request.questions = Some(Arc::new(User));
    match client.request_answering(request).await {
        Ok(result) => {
            eprintln!("{method} {name}: {}", result.get());
            Ok(())
        }
        Err(Error::Rpc(error)) => {
            eprintln!("{method} {name}: {error}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Something for every parameter that must be there.
fn arguments_for(schema: &Value) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut number = 4;
    required
        .map(|name| {
            let value = match schema["properties"][name]["type"].as_str() {
                Some("number" | "integer") => {
                    number += 1;
                    json!(number)
                }
                Some("boolean") => json!(true),
                Some("object") => json!({}),
                Some("array") => json!([]),
                _ => json!("something"),
            };
            (name.to_owned(), value)
        })
        .collect()
}

/// Somebody who agrees to everything and leaves forms as they are.
struct User;

impl Handler for User {
    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        Box::pin(async move {
            let answer = match method {
                "elicitation/create" => {
                    let params: Value =
                        params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
                    json!({"action": "accept", "content": defaults(&params["requestedSchema"])})
                }
                "sampling/createMessage" => json!({
                    "role": "assistant", "model": "none", "content": {"type": "text", "text": "an answer"}
                }),
                "roots/list" => json!({"roots": []}),
                _ => return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, "there is no such method")),
            };
            RawValue::from_string(answer.to_string())
                .map_err(|error| RpcError::new(RpcError::INTERNAL, error.to_string()))
        })
    }
}

/// A form that is sent as it was shown, with its tick boxes ticked.
fn defaults(schema: &Value) -> Map<String, Value> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields
        .filter_map(|(name, field)| match (field.get("default"), field["type"].as_str()) {
            (Some(value), _) => Some((name.clone(), value.clone())),
            (None, Some("boolean")) => Some((name.clone(), json!(true))),
            _ => None,
        })
        .collect()
}

struct Way(Connections<HttpConnector, Full<Bytes>>);

impl Http for Way {
    fn send(&self, request: http::Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async move {
            let response = self.0.request(request.map(Full::new)).await.map_err(|error| error.to_string())?;
            Ok(response.map(|body| body.map_err(|error| Box::new(error) as BoxError).boxed_unsync()))
        })
    }
}

/// The suite's sign-in pages agree at once, and lead straight back.
impl Browser for Way {
    fn visit(&self, page: Url) -> BoxFuture<'_, Result<Url, String>> {
        Box::pin(async move {
            let request =
                http::Request::get(page.as_str()).body(Bytes::new()).map_err(|error| error.to_string())?;
            let response = self.send(request).await?;
            let back = response.headers().get(LOCATION).and_then(|back| back.to_str().ok());
            let back = back.ok_or_else(|| format!("the page led nowhere ({})", response.status()))?;
            page.join(back).map_err(|error| error.to_string())
        })
    }
}

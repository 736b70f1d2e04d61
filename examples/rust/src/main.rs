//! Runs a shell command in a workspace of its own, and shows its output while it runs: `workspaced-example TARGET COMMAND`.

use std::error::Error;
use std::io::Write;
use std::process::id;
use std::time::SystemTime;

use pb::execution_service_client::ExecutionServiceClient;
use pb::lifecycle_service_client::LifecycleServiceClient;
use pb::process_event::Event;
use pb::server_service_client::ServerServiceClient;
use tonic::transport::Channel;

#[allow(clippy::all)]
mod pb {
    include!("../target/generated/workspaced/v1/workspaced.v1.rs");
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(command)) = (arguments.next(), arguments.next()) else {
        return Err("usage: workspaced-example TARGET COMMAND".into());
    };
    let channel = Channel::from_shared(format!("http://{target}"))?
        .connect()
        .await?;
    let info = ServerServiceClient::new(channel.clone())
        .get_server_info(pb::GetServerInfoRequest::default())
        .await?
        .into_inner();
    println!(
        "server {}, API revision {}",
        info.version, info.api_revision
    );

    // A name of the caller's makes it safe to send the request again.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let workspace_id = format!("rust-{}-{}", id(), now.as_nanos());
    let mut lifecycle = LifecycleServiceClient::new(channel.clone());
    lifecycle
        .initialize_workspace(pb::InitializeWorkspaceRequest {
            workspace_id: workspace_id.clone(),
            spec: Some(pb::WorkspaceSpec {
                backend: pb::Backend::Local.into(),
                ..Default::default()
            }),
            ..Default::default()
        })
        .await?;
    let outcome = run(channel, &workspace_id, command).await;
    lifecycle
        .delete_workspace(pb::DeleteWorkspaceRequest {
            workspace_id,
            ..Default::default()
        })
        .await?;
    println!("{}", outcome?);
    Ok(())
}

/// Follows the process to its end, and says how that was.
async fn run(channel: Channel, workspace_id: &str, command: String) -> Result<String> {
    let start = pb::ExecStart {
        workspace_id: workspace_id.to_owned(),
        process_id: "command".to_owned(),
        spec: Some(pb::ProcessSpec {
            command: Some(pb::process_spec::Command::ShellCommand(command)),
            ..Default::default()
        }),
    };
    let first = pb::ExecRequest {
        request: Some(pb::exec_request::Request::Start(start)),
    };
    let mut events = ExecutionServiceClient::new(channel)
        .exec(tokio_stream::once(first))
        .await?
        .into_inner();
    while let Some(response) = events.message().await? {
        match response.event.and_then(|event| event.event) {
            Some(Event::Output(output)) => std::io::stdout().write_all(&output.data)?,
            Some(Event::Exited(exit)) => {
                return Ok(match exit.status {
                    Some(pb::process_exit::Status::ExitCode(code)) => format!("exit code {code}"),
                    Some(pb::process_exit::Status::Signal(name)) => format!("signal {name}"),
                    None => format!("ended: {}", exit.reason().as_str_name()),
                });
            }
            _ => {}
        }
    }
    Err("the stream ended before the process did".into())
}

package example;

import com.workspaced.v1.Backend;
import com.workspaced.v1.DeleteWorkspaceRequest;
import com.workspaced.v1.ExecRequest;
import com.workspaced.v1.ExecResponse;
import com.workspaced.v1.ExecStart;
import com.workspaced.v1.ExecutionServiceGrpc;
import com.workspaced.v1.GetServerInfoRequest;
import com.workspaced.v1.InitializeWorkspaceRequest;
import com.workspaced.v1.LifecycleServiceGrpc;
import com.workspaced.v1.ProcessExit;
import com.workspaced.v1.ProcessSpec;
import com.workspaced.v1.ServerServiceGrpc;
import com.workspaced.v1.WorkspaceSpec;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.stub.StreamObserver;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Runs a shell command in a workspace of its own, and shows its output while it runs: RunCommand TARGET COMMAND. */
public final class RunCommand {
  private RunCommand() {}

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create()).build();
    try {
      var info = ServerServiceGrpc.newBlockingStub(channel).getServerInfo(GetServerInfoRequest.getDefaultInstance());
      System.out.println("server " + info.getVersion() + ", API revision " + info.getApiRevision());
      var lifecycle = LifecycleServiceGrpc.newBlockingStub(channel);
      var spec = WorkspaceSpec.newBuilder().setBackend(Backend.BACKEND_LOCAL);
      // A name of the caller's makes it safe to send the request again.
      String id = "java-" + UUID.randomUUID();
      lifecycle.initializeWorkspace(
          InitializeWorkspaceRequest.newBuilder().setWorkspaceId(id).setSpec(spec).build());
      try {
        System.out.println("exit code " + run(channel, id, arguments[1]).getExitCode());
      } finally {
        lifecycle.deleteWorkspace(DeleteWorkspaceRequest.newBuilder().setWorkspaceId(id).build());
      }
    } finally {
      channel.shutdown().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  private static ProcessExit run(ManagedChannel channel, String workspaceId, String command) throws Exception {
    var ended = new CompletableFuture<ProcessExit>();
    StreamObserver<ExecRequest> requests =
        ExecutionServiceGrpc.newStub(channel)
            .exec(
                new StreamObserver<ExecResponse>() {
                  @Override
                  public void onNext(ExecResponse response) {
                    var event = response.getEvent();
                    if (event.hasOutput()) {
                      System.out.print(event.getOutput().getData().toStringUtf8());
                    } else if (event.hasExited()) {
                      ended.complete(event.getExited());
                    }
                  }

                  @Override
                  public void onError(Throwable error) {
                    ended.completeExceptionally(error);
                  }

                  @Override
                  public void onCompleted() {
                    ended.completeExceptionally(new IllegalStateException("the stream ended before the process did"));
                  }
                });
    var start =
        ExecStart.newBuilder()
            .setWorkspaceId(workspaceId)
            .setProcessId(UUID.randomUUID().toString())
            .setSpec(ProcessSpec.newBuilder().setShellCommand(command));
    requests.onNext(ExecRequest.newBuilder().setStart(start).build());
    requests.onCompleted();
    return ended.get();
  }
}

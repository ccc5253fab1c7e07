// Writes records-3.8.hex with ZooKeeper's own classes, so that the bytes in it come from nobody who wrote this crate:
//   javac -cp zookeeper-3.8.0.jar:zookeeper-jute-3.8.0.jar Golden.java
//   java -cp .:zookeeper-3.8.0.jar:zookeeper-jute-3.8.0.jar:slf4j-api.jar Golden > records-3.8.hex

import java.io.ByteArrayOutputStream;
import java.util.Arrays;
import java.util.List;
import org.apache.jute.BinaryOutputArchive;
import org.apache.jute.Record;
import org.apache.zookeeper.MultiOperationRecord;
import org.apache.zookeeper.MultiResponse;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.data.*;
import org.apache.zookeeper.proto.*;

public class Golden {
    static void show(String name, Record record) throws Exception {
        show(name, record, null);
    }

    static void show(String name, Record record, Boolean readOnly) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryOutputArchive out = BinaryOutputArchive.getArchive(bytes);
        record.serialize(out, "record");
        if (readOnly != null) {
            // As ClientCnxn and FinalRequestProcessor do it in 3.8: behind the record.
            out.writeBool(readOnly, "readOnly");
        }
        StringBuilder hex = new StringBuilder();
        for (byte b : bytes.toByteArray()) {
            hex.append(String.format("%02x", b));
        }
        System.out.println(name + " " + hex);
    }

    public static void main(String[] args) throws Exception {
        byte[] password = new byte[16];
        for (int i = 0; i < 16; i++) {
            password[i] = (byte) (i * 17);
        }
        byte[] data = {0, 1, (byte) 0xff};
        Stat stat = new Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
        List<ACL> acl = Arrays.asList(
            new ACL(31, new Id("world", "anyone")), new ACL(1, new Id("digest", "bob:x")));
        List<String> names = Arrays.asList("a", "", "ü");

        show("connect-request-old", new ConnectRequest(0, 0x1_0000_0001L, 30000, -2, password));
        show("connect-request", new ConnectRequest(0, 0x1_0000_0001L, 30000, -2, password), true);
        show("connect-response-old", new ConnectResponse(0, 4000, 0x7fffffffffffffffL, password));
        show("connect-response", new ConnectResponse(0, 4000, 0x7fffffffffffffffL, password), false);
        show("request-header", new RequestHeader(7, -11));
        show("reply-header", new ReplyHeader(-8, 0x0102030405060708L, -110));
        show("stat", stat);
        show("acl", acl.get(1));
        show("create", new CreateRequest("/a", data, acl, 3));
        show("create-null", new CreateRequest("/a", null, null, 0));
        show("create-ttl", new CreateTTLRequest("/a", data, acl, 5, 60000));
        show("delete", new DeleteRequest("/a", -1));
        show("exists", new ExistsRequest("/a", true));
        show("get-data", new GetDataRequest("/a", false));
        show("set-data", new SetDataRequest("/a", data, 2));
        show("get-acl", new GetACLRequest("/a"));
        show("set-acl", new SetACLRequest("/a", acl, 2));
        show("get-children", new GetChildrenRequest("/a", true));
        show("get-children2", new GetChildren2Request("/a", true));
        show("sync", new SyncRequest("/a"));
        show("check", new CheckVersionRequest("/a", 2));
        show("reconfig", new ReconfigRequest("server.1=a", null, null, -1));
        show("check-watches", new CheckWatchesRequest("/a", 2));
        show("remove-watches", new RemoveWatchesRequest("/a", 3));
        show("auth", new AuthPacket(0, "digest", data));
        show("set-watches", new SetWatches(9, names, Arrays.asList(), null));
        show("set-watches2", new SetWatches2(9, names, Arrays.asList(), names, Arrays.asList("/p"), Arrays.asList("/r")));
        show("sasl-request", new GetSASLRequest(data));
        show("sasl-response", new SetSASLResponse(null));
        show("get-ephemerals", new GetEphemeralsRequest("/a"));
        show("get-all-children-number", new GetAllChildrenNumberRequest("/a"));
        show("add-watch", new AddWatchRequest("/a", 1));
        show("create-response", new CreateResponse("/a"));
        show("create2-response", new Create2Response("/a", stat));
        show("exists-response", new ExistsResponse(stat));
        show("set-data-response", new SetDataResponse(stat));
        show("set-acl-response", new SetACLResponse(stat));
        show("get-data-response", new GetDataResponse(data, stat));
        show("get-acl-response", new GetACLResponse(acl, stat));
        show("get-children-response", new GetChildrenResponse(names));
        show("get-children2-response", new GetChildren2Response(names, stat));
        show("sync-response", new SyncResponse("/a"));
        show("get-ephemerals-response", new GetEphemeralsResponse(names));
        show("get-all-children-number-response", new GetAllChildrenNumberResponse(42));
        show("who-am-i-response", new WhoAmIResponse(Arrays.asList(new ClientInfo("ip", "127.0.0.1"))));
        show("error-response", new ErrorResponse(-101));
        show("watcher-event", new WatcherEvent(4, 3, "/a"));
        show("multi-header", new MultiHeader(1, false, -1));

        show("multi", new MultiOperationRecord(Arrays.asList(
            Op.create("/a", data, acl, CreateMode.EPHEMERAL_SEQUENTIAL.toFlag()),
            Op.create("/c", data, acl, CreateMode.CONTAINER),
            Op.create("/t", data, acl, CreateMode.PERSISTENT_WITH_TTL, 60000),
            Op.delete("/a", 1), Op.setData("/a", data, 2), Op.check("/a", 3))));
        show("multi-read", new MultiOperationRecord(Arrays.asList(Op.getData("/a"), Op.getChildren("/b"))));
        MultiResponse results = new MultiResponse();
        results.add(new OpResult.CreateResult("/a"));
        results.add(new OpResult.CreateResult("/a", stat));
        results.add(new OpResult.DeleteResult());
        results.add(new OpResult.SetDataResult(stat));
        results.add(new OpResult.CheckResult());
        results.add(new OpResult.GetDataResult(data, stat));
        results.add(new OpResult.GetChildrenResult(names));
        results.add(new OpResult.ErrorResult(-101));
        show("multi-response", results);
    }
}

//! Tests of listeners: addresses of clients behind balancers, and bytes of answers that the kernel
//! buffers.

use std::net::{IpAddr, SocketAddr};

use accept::{Listeners, Proxies};
use ppp::v2::{Builder, Command, IPv4, Protocol, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const CLIENT: [u8; 4] = [192, 0, 2, 7];

fn header(command: Command, from: [u8; 4]) -> Vec<u8> {
    let addresses = IPv4::new(from, [192, 0, 2, 1], 40_000, 443);
    Builder::with_addresses(Version::Two | command, Protocol::Stream, addresses).build().expect("it is short")
}

#[tokio::test]
async fn a_balancer_says_where_a_connection_comes_from() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let proxies = Proxies::at("127.0.0.1".parse().unwrap());
    let listeners = Listeners { proxies, ..Listeners::from(listener) };
    // A silent connection, and three with wrong headers, delay no other connection.
    let _silent = TcpStream::connect(to).await.unwrap();
    for wrong in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &header(Command::Proxy, [127, 0, 0, 1]), &[0; 16]] {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(wrong).await.unwrap();
    }
    let mut client = TcpStream::connect(to).await.unwrap();
    client.write_all(&header(Command::Proxy, CLIENT)).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (incoming, addr) = listeners.accept().await.unwrap();
    assert_eq!(addr, SocketAddr::from((CLIENT, 40_000)));
    assert!(!incoming.is_on_loopback(), "its client is not on this machine");
    let mut said = [0; 5];
    incoming.into_plain().unwrap().read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hello");
    let mut probe = TcpStream::connect(to).await.unwrap();
    probe.write_all(&header(Command::Local, CLIENT)).await.unwrap();
    let (incoming, addr) = listeners.accept().await.unwrap();
    assert_eq!((addr.ip(), incoming.is_on_loopback()), (IpAddr::from([127, 0, 0, 1]), true));
}

/// Some balancers send the header only with the client's first bytes, so clients can keep them
/// waiting.
#[tokio::test]
async fn connections_without_a_header_shut_out_no_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let proxies = Proxies::at("127.0.0.1".parse().unwrap());
    let listeners = Listeners { proxies, ..Listeners::from(listener) };
    let connecting = async {
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(TcpStream::connect(to).await.unwrap());
        }
        let mut client = TcpStream::connect(to).await.unwrap();
        client.write_all(&header(Command::Proxy, CLIENT)).await.unwrap();
        (silent, client)
    };
    let (accepted, (mut silent, _client)) = tokio::join!(listeners.accept(), connecting);
    assert_eq!(accepted.unwrap().1, SocketAddr::from((CLIENT, 40_000)));
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "the oldest one is closed");
}

#[tokio::test]
async fn other_clients_have_no_header() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let proxies = Proxies::at("192.0.2.0/24".parse().unwrap());
    let listeners = Listeners { proxies, ..Listeners::from(listener) };
    let client = TcpStream::connect(to).await.unwrap();
    let (_, addr) = listeners.accept().await.unwrap();
    assert_eq!(addr, client.local_addr().unwrap());
}

/// For a client that reads nothing, the kernel buffers little beyond the client's receive buffer.
/// All other bytes wait in the process, which counts them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_client_does_not_take_stays_with_the_program() {
    let listeners = Listeners::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let _silent = TcpStream::connect(listeners.addrs()[0].unwrap()).await.unwrap();
    let (incoming, _) = listeners.accept().await.unwrap();
    incoming.set_options().unwrap();
    let stream = incoming.into_plain().unwrap();
    let (block, mut kept) = (vec![0; 16 << 10], 0);
    stream.writable().await.unwrap();
    while let Ok(bytes) = stream.try_write(&block) {
        kept += bytes;
    }
    assert!(kept < 1 << 20, "{kept} bytes");
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The network: which kinds of sockets a jail makes, and whom it talks to over
 * them. What decides is the address that the kernel is about to use.
 *
 * A destination on this machine counts only when a socket of the jail's own holds
 * it alone. Such sockets are entered by address and port when the port is theirs
 * and looked at again when somebody wants to talk to them. What another socket
 * could share (SO_REUSEADDR for UDP, SO_REUSEPORT, a device) is never entered.
 */
#ifndef AGENT_LOCK_NETWORK_BPF_H
#define AGENT_LOCK_NETWORK_BPF_H

#include "jail.bpf.h"
#include <bpf/bpf_endian.h>

/* ---- Shared with Go ---- */

enum network_mode {
	NETWORK_NONE, /* own listeners; also what a slot without rights has */
	NETWORK_WEB,
	NETWORK_HOST,
};

#define MAX_RESOLVERS 8

struct network {
	enum network_mode mode;
	__u32 apart; /* inode number of the jail's own network namespace; 0: the host's */
	struct address resolvers[MAX_RESOLVERS];
};

/* A range of addresses that are this machine's, for a slot. */
struct local_range {
	__u32 bits; /* of what follows */
	__u32 slot;
	struct address address;
};

/* ---- Maps ---- */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS + 1);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct network);
} networks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct local_range);
	__type(value, __u32);
} local_ranges SEC(".maps");

/* Where a jail's socket can be reached. */
struct own_place {
	__u64 cookie;
	struct address address;
	__u16 port;
	__u16 protocol;
	__u32 unused;
};

#define MAX_OWN_SOCKETS (1 << 16)

/* Address of the struct sock, to be found in own_places as well. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN_SOCKETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct own_place);
	__type(value, __u64);
} own_sockets SEC(".maps");

/* The other way round, cleared before the kernel reuses the memory. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN_SOCKETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct own_place);
} own_places SEC(".maps");

/* ---- Addresses ---- */

#define V4_PREFIX bpf_htonl(0xffff)

static __always_inline bool is_v4(const struct address *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == V4_PREFIX;
}

static __always_inline void set_v4(struct address *a, __be32 v4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = V4_PREFIX;
	a->word[3] = v4;
}

static __always_inline bool same_address(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

/* :: and 0.0.0.0 */
static __always_inline bool is_unspecified(const struct address *a)
{
	return !a->word[0] && !a->word[1] && !a->word[3] && (!a->word[2] || is_v4(a));
}

/* ::1, 127.0.0.0/8, and 0.0.0.0/8 and ::, which the kernel takes for them. */
static __always_inline bool is_loopback(const struct address *a)
{
	__u32 first = bpf_ntohl(a->word[3]) >> 24;

	if (is_v4(a))
		return first == 127 || first == 0;
	return !a->word[0] && !a->word[1] && !a->word[2] && bpf_ntohl(a->word[3]) <= 1;
}

/* Link-local addresses, and what answers for the machine's credentials in a cloud. */
static __always_inline bool is_forbidden(const struct address *a)
{
	__u32 w0 = bpf_ntohl(a->word[0]), w1 = bpf_ntohl(a->word[1]);
	__u32 w2 = bpf_ntohl(a->word[2]), w3 = bpf_ntohl(a->word[3]);

	if (is_v4(a))
		return w3 >> 16 == 0xa9fe ||			     /* 169.254.0.0/16 */
		       w3 == 0xa83f8110 ||			     /* 168.63.129.16, Azure */
		       w3 == 0x646464c8 ||			     /* 100.100.100.200, Alibaba */
		       w3 == 0x64600060 ||			     /* 100.96.0.96, Volcano */
		       w3 == 0xc00000c0;			     /* 192.0.0.192, Oracle */
	return w0 >> 22 == 0xfe80 >> 6 ||			     /* fe80::/10 */
	       (w0 == 0xfd000ec2 && !w1) ||			     /* fd00:ec2::/64, Amazon */
	       (w0 == 0xfd2000ce && !w1) ||			     /* fd20:ce::/64, Google */
	       (w0 == 0xfd000042 && !w1) ||			     /* fd00:42::/64, Scaleway */
	       (w0 == 0xfd0000c1 && !w1 && !w2 && w3 == 0xa9fea9fe); /* Oracle */
}

static __always_inline bool is_local(__u32 slot, const struct address *a)
{
	struct local_range key = {.bits = 32 + 128, .slot = slot, .address = *a};

	return is_loopback(a) || bpf_map_lookup_elem(&local_ranges, &key);
}

enum carried {
	CARRIES_LOCAL = 1 << 0,
	CARRIES_FORBIDDEN = 1 << 1,
};

/* What an IPv6 address is that carries this IPv4 address. */
static __noinline int carried(__u32 slot, __u32 v4)
{
	struct address a;

	set_v4(&a, bpf_htonl(v4));
	return (is_local(slot, &a) ? CARRIES_LOCAL : 0) |
	       (is_forbidden(&a) ? CARRIES_FORBIDDEN : 0);
}

/*
 * Routers and tunnels on the way turn such addresses into the IPv4 address in
 * them: 6to4, Teredo, ISATAP, IPv4-compatible, IPv4-translated and NAT64, whose local
 * prefix (RFC 8215) has it in one of several places (RFC 6052).
 */
static __noinline int tunnels_to(__u32 slot, const struct address *a)
{
	__u32 w0, w1, w2, w3;

	if (!a || is_v4(a))
		return 0;
	w0 = bpf_ntohl(a->word[0]);
	w1 = bpf_ntohl(a->word[1]);
	w2 = bpf_ntohl(a->word[2]);
	w3 = bpf_ntohl(a->word[3]);
	if (w0 >> 16 == 0x2002)
		return carried(slot, w0 << 16 | w1 >> 16);
	if (w0 == 0x20010000)
		return carried(slot, w1) | carried(slot, ~w3);
	if ((w2 & ~0x02000000) == 0x5efe)
		return carried(slot, w3);
	if (!w0 && !w1 && (!w2 || w2 == 0xffff0000))
		return w3 > 1 ? carried(slot, w3) : 0;
	if (w0 != 0x0064ff9b)
		return 0;
	if (!w1 && !w2)
		return carried(slot, w3);
	if (w1 >> 16 != 1)
		return 0;
	return carried(slot, w3) | carried(slot, w1 << 16 | (w2 >> 8 & 0xffff)) |
	       carried(slot, w1 << 24 | (w2 & 0xffffff)) | carried(slot, w2 << 8 | w3 >> 24);
}

/* ---- The jail's own listeners ---- */

static __always_inline bool is_inet(__u16 family)
{
	return family == AF_INET || family == AF_INET6;
}

/* Was the kernel built with IPv6? */
static __always_inline bool has_v6(void)
{
	return bpf_core_field_exists(struct sock_common, skc_v6_rcv_saddr);
}

static __always_inline struct owner *owner_of(struct sock *sk)
{
	return bpf_sk_storage_get(&sockets, sk, NULL, 0);
}

static __noinline int forget_socket(__u64 sk)
{
	struct own_place *place = bpf_map_lookup_elem(&own_places, &sk), key;
	__u64 *entered;

	if (!place)
		return 0;
	key = *place;
	entered = bpf_map_lookup_elem(&own_sockets, &key);
	if (entered && *entered == sk)
		bpf_map_delete_elem(&own_sockets, &key);
	bpf_map_delete_elem(&own_places, &sk);
	return 0;
}

static __always_inline void local_address(struct sock *sk, struct address *a)
{
	if (sk->__sk_common.skc_family == AF_INET)
		set_v4(a, sk->__sk_common.skc_rcv_saddr);
	else if (has_v6())
		bpf_probe_read_kernel(a, sizeof(*a), &sk->__sk_common.skc_v6_rcv_saddr);
}

/* Enters a socket that has its port. */
static __noinline int enter_socket(struct sock *sk, __u64 cookie, __u16 protocol)
{
	struct own_place place = {.cookie = cookie, .protocol = protocol};
	__u64 address = (__u64)sk;

	place.port = sk->__sk_common.skc_num;
	if (!place.port || !is_inet(sk->__sk_common.skc_family))
		return 0;
	local_address(sk, &place.address);
	forget_socket(address);
	if (!bpf_map_update_elem(&own_places, &address, &place, BPF_ANY))
		bpf_map_update_elem(&own_sockets, &place, &address, BPF_ANY);
	return 0;
}

/*
 * Is the socket at this address, which is in the jail, the only one that the kernel
 * can choose for the destination? While it lives, bind(2) and listen(2) refuse
 * another one to everybody, unless one of the fields read here allows it.
 */
static __always_inline bool holds_alone(__u64 address, struct sock *from, const struct peer *peer)
{
	struct sock *sk = (struct sock *)address;
	bool v6only = BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_ipv6only);
	__u32 reuse = BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuse);
	struct address a;

	if (BPF_CORE_READ(sk, __sk_common.skc_num) != peer->port ||
	    BPF_CORE_READ(sk, __sk_common.skc_net.net) != from->__sk_common.skc_net.net ||
	    BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if) ||
	    BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuseport) ||
	    BPF_CORE_READ(sk, sk_reuseport_cb))
		return false;
	if (peer->protocol == IPPROTO_TCP) {
		if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_LISTEN || reuse > 1)
			return false;
	} else if (reuse) {
		return false;
	}
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET)
		set_v4(&a, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
	else if (has_v6())
		BPF_CORE_READ_INTO(&a, sk, __sk_common.skc_v6_rcv_saddr);
	else
		return false;
	if (!is_unspecified(&a))
		return same_address(&a, &peer->address) && !is_unspecified(&peer->address);
	if (is_v4(&a))
		return is_v4(&peer->address);
	/*
	 * The kernel takes :: for the IPv4 loopback where the sender is bound to an
	 * IPv4 address, and 0.0.0.0 for the address that it is bound to.
	 */
	return !v6only || !(is_v4(&peer->address) || is_unspecified(&peer->address));
}

/*
 * What own_places says is true: it is cleared before the memory is anything else.
 * own_sockets may lag behind where threads race.
 */
static __always_inline bool owns_place(const struct own_place *place, struct sock *from,
				       const struct peer *peer)
{
	__u64 *sk = bpf_map_lookup_elem(&own_sockets, place);
	const struct own_place *entered;
	__u64 address;

	if (!sk)
		return false;
	address = *sk;
	entered = bpf_map_lookup_elem(&own_places, &address);
	return entered && entered->cookie == place->cookie && entered->port == place->port &&
	       entered->protocol == place->protocol &&
	       same_address(&entered->address, &place->address) && holds_alone(address, from, peer);
}

static __noinline int is_own(__u64 cookie, struct sock *from, const struct peer *peer)
{
	struct own_place place = {.cookie = cookie};

	if (!peer || !cookie)
		return 0;
	place.address = peer->address;
	place.port = peer->port;
	place.protocol = peer->protocol;
	if (owns_place(&place, from, peer))
		return 1;
	if (is_v4(&peer->address)) {
		set_v4(&place.address, 0);
		if (owns_place(&place, from, peer))
			return 1;
	}
	__builtin_memset(&place.address, 0, sizeof(place.address));
	return owns_place(&place, from, peer);
}

/*
 * Every UDP port that is given out, by bind(2) or by the way, and to nobody else
 * from then on. No LSM hook comes after the fact.
 */
SEC("fexit/udp_lib_get_port")
int BPF_PROG(udp_port_taken, struct sock *sk, unsigned short wanted, unsigned int hash, int failed)
{
	struct owner *owner;

	if (failed)
		return 0;
	owner = owner_of(sk);
	if (!owner || owner->flags & OWNER_SHARES)
		return 0;
	enter_socket(sk, owner->cookie, IPPROTO_UDP);
	if (owner->flags & OWNER_SHARES) /* meanwhile */
		forget_socket((__u64)sk);
	return 0;
}

SEC("lsm/socket_listen")
int BPF_PROG(socket_listen, struct socket *sock, int backlog, int ret)
{
	struct current_jail c;
	struct sock *sk = sock->sk;
	struct owner *owner;

	if (ret || !sk || !is_inet(sk->__sk_common.skc_family) || !jailed(&c, 0))
		return ret;
	owner = owner_of(sk);
	if (owner && owner->cookie == c.jail->cookie)
		enter_socket(sk, owner->cookie, IPPROTO_TCP);
	return 0;
}

/* ---- Verdicts ---- */

static __noinline int refuse_peer(struct current_jail *c, const struct peer *peer, __u32 why,
				  int error)
{
	struct event *event = open_record(c, 0, 0, error);

	if (!event)
		return 0;
	event->why = why;
	if (peer)
		event->peer = *peer;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static __always_inline bool is_resolver(const struct network *network, const struct peer *peer)
{
	if (peer->port != 53)
		return false;
	for (int i = 0; i < MAX_RESOLVERS; i++)
		if (same_address(&network->resolvers[i], &peer->address))
			return !is_unspecified(&peer->address);
	return false;
}

/* Why a jail may not talk to a peer; 0: it may. */
static __noinline __u32 judge_peer(struct current_jail *c, struct sock *sk, const struct peer *peer)
{
	__u32 slot = c->slot;
	const struct network *network = bpf_map_lookup_elem(&networks, &slot);
	int via;

	if (!network || !peer)
		return WHY_MODE;
	/* Some clouds' resolver has a forbidden address; its port 53 gives names only. */
	if (network->mode != NETWORK_NONE && is_resolver(network, peer))
		return 0;
	via = tunnels_to(slot, &peer->address);
	if (is_forbidden(&peer->address) || via & CARRIES_FORBIDDEN)
		return WHY_FORBIDDEN;
	if (network->mode == NETWORK_HOST)
		return 0;
	if (via)
		return WHY_LOCAL;
	if (is_local(slot, &peer->address)) {
		if (network->apart && network->apart == sk->__sk_common.skc_net.net->ns.inum)
			return 0;
		return is_own(c->jail->cookie, sk, peer) ? 0 : WHY_LOCAL;
	}
	if (network->mode == NETWORK_WEB && peer->protocol == IPPROTO_TCP &&
	    (peer->port == 80 || peer->port == 443))
		return 0;
	return WHY_MODE;
}

static __always_inline int check_network_peer(struct current_jail *c, struct sock *sk,
					      const struct peer *peer)
{
	__u32 why = judge_peer(c, sk, peer);

	if (!why)
		return 0;
	refuse_peer(c, peer, why, -EACCES);
	return ERROR(EACCES);
}

/* Reads what the kernel copied from the caller. v4: an address without family is IPv4. */
static __always_inline __u16 read_name(const void *name, bool v4, struct peer *peer)
{
	struct {
		__u16 family;
		__be16 port;
		__be32 v4; /* IPv6: flow label */
		struct address v6;
	} address = {};

	if (bpf_probe_read_kernel(&address, sizeof(address), name))
		return AF_UNREADABLE;
	if (v4 && address.family == AF_UNSPEC)
		address.family = AF_INET;
	peer->family = address.family;
	peer->port = bpf_ntohs(address.port);
	if (address.family == AF_INET)
		set_v4(&peer->address, address.v4);
	else
		peer->address = address.v6;
	return address.family;
}

/* Netlink: to the kernel only, not to other processes or groups of them. */
static __always_inline int check_netlink_name(struct current_jail *c, const void *name)
{
	struct {
		__u16 family, pad;
		__u32 pid, groups;
	} address = {};

	if (!bpf_probe_read_kernel(&address, sizeof(address), name) && !address.pid &&
	    !address.groups)
		return 0;
	refuse_peer(c, NULL, WHY_NETLINK, -EPERM);
	return ERROR(EPERM);
}

static __always_inline int refuse_kind(struct current_jail *c, int family, int type, int protocol,
				       int error)
{
	struct peer kind = {.family = family, .protocol = protocol, .type = type};

	refuse_peer(c, &kind, WHY_KIND, error);
	return error;
}

/*
 * A UDP socket that was bound to every address has one of them while it is
 * connected, and afterwards again all: then others may have joined it.
 */
static __always_inline void note_connect(struct sock *sk, bool disconnect)
{
	struct owner *owner = owner_of(sk);

	if (!owner)
		return;
	if (disconnect || owner->flags & OWNER_CONNECTED) {
		owner->flags |= OWNER_SHARES;
		forget_socket((__u64)sk);
	}
	owner->flags |= OWNER_CONNECTED;
}

SEC("lsm/socket_connect")
int BPF_PROG(socket_connect, struct socket *sock, struct sockaddr *name, int size, int ret)
{
	struct current_jail c;
	struct sock *sk = sock->sk;
	struct peer peer = {};
	__u16 family, to;

	if (ret || !sk)
		return ret;
	family = sk->__sk_common.skc_family;
	if (family == AF_UNIX || !jailed(&c, HOOK_SOCKET_CONNECT))
		return 0;
	if (family == AF_NETLINK)
		return check_netlink_name(&c, name);
	peer.protocol = sk->sk_protocol;
	if (!is_inet(family) || (peer.protocol != IPPROTO_TCP && peer.protocol != IPPROTO_UDP))
		return refuse_kind(&c, family, sk->sk_type, sk->sk_protocol, ERROR(EPERM));
	to = read_name(name, false, &peer);
	if (peer.protocol == IPPROTO_UDP)
		note_connect(sk, to == AF_UNSPEC);
	if (to == AF_UNSPEC)
		return 0;
	if (!is_inet(to))
		return refuse_kind(&c, to, sk->sk_type, sk->sk_protocol, ERROR(EAFNOSUPPORT));
	return check_network_peer(&c, sk, &peer);
}

#define MAX_CONTROLS 16

/* Does a datagram bring a route of its own? Then its address is not where it goes. */
static __noinline int brings_route(const struct msghdr *msg)
{
	void *at = BPF_CORE_READ(msg, msg_control);
	__u64 left = BPF_CORE_READ(msg, msg_controllen);
	struct {
		__u64 size;
		int level, type;
	} control;

	if (left && BPF_CORE_READ_BITFIELD_PROBED(msg, msg_control_is_user))
		return 1;
	for (int i = 0; i < MAX_CONTROLS; i++) {
		if (left < sizeof(control))
			return 0;
		if (bpf_probe_read_kernel(&control, sizeof(control), at) ||
		    control.size < sizeof(control) || control.size > left)
			return 1;
		if (control.level == SOL_IP && control.type == IP_RETOPTS)
			return 1;
		if (control.level == SOL_IPV6 &&
		    (control.type == IPV6_RTHDR || control.type == IPV6_2292RTHDR))
			return 1;
		control.size = (control.size + 7) & ~7ULL;
		if (control.size >= left)
			return 0;
		left -= control.size;
		at += control.size;
	}
	return 1;
}

/* The peer of a connected socket; false: it has none. */
static __always_inline bool connected_peer(struct sock *sk, struct peer *peer)
{
	peer->family = sk->__sk_common.skc_family;
	peer->port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (peer->family == AF_INET)
		set_v4(&peer->address, sk->__sk_common.skc_daddr);
	else if (has_v6())
		bpf_probe_read_kernel(&peer->address, sizeof(peer->address),
				      &sk->__sk_common.skc_v6_daddr);
	return peer->port != 0;
}

SEC("lsm/socket_sendmsg")
int BPF_PROG(socket_sendmsg, struct socket *sock, struct msghdr *msg, int size, int ret)
{
	struct current_jail c;
	struct sock *sk = sock->sk;
	void *name = msg->msg_name;
	struct peer peer = {};
	__u16 family;

	if (ret || !sk)
		return ret;
	family = sk->__sk_common.skc_family;
	if (family == AF_UNIX)
		return 0;
	peer.protocol = sk->sk_protocol;
	if (is_inet(family) && peer.protocol == IPPROTO_TCP &&
	    (!name || !(msg->msg_flags & MSG_FASTOPEN)))
		return 0; /* goes where connect(2) or accept(2) led */
	if (!jailed(&c, HOOK_SOCKET_SENDMSG))
		return 0;
	if (family == AF_NETLINK)
		return name ? check_netlink_name(&c, name) : 0;
	if (!is_inet(family) || (peer.protocol != IPPROTO_TCP && peer.protocol != IPPROTO_UDP))
		return refuse_kind(&c, family, sk->sk_type, sk->sk_protocol, ERROR(EPERM));
	if (name && msg->msg_namelen <= 0)
		name = NULL;
	if (name) {
		__u16 to = read_name(name, family == AF_INET, &peer);

		if (to == AF_UNSPEC)
			name = NULL; /* for IPv6: to whom it is connected */
		else if (!is_inet(to))
			return refuse_kind(&c, to, sk->sk_type, sk->sk_protocol,
					   ERROR(EAFNOSUPPORT));
	}
	/* Whom it is connected to may have changed since, as the end of an own listener. */
	if (!name && !connected_peer(sk, &peer))
		return 0;
	if (peer.protocol == IPPROTO_UDP && brings_route(msg)) {
		refuse_peer(&c, &peer, WHY_ROUTE, -EPERM);
		return ERROR(EPERM);
	}
	return check_network_peer(&c, sk, &peer);
}

/* ---- Kinds of sockets, and their options ---- */

SEC("lsm/socket_create")
int BPF_PROG(socket_create, int family, int type, int protocol, int kern, int ret)
{
	struct current_jail c;

	if (ret || kern || family == AF_UNIX || !jailed(&c, HOOK_SOCKET_CREATE))
		return ret;
	if (family == AF_NETLINK) {
		if (protocol == NETLINK_ROUTE)
			return 0;
		return refuse_kind(&c, family, type, protocol, ERROR(EPROTONOSUPPORT));
	}
	if (!is_inet(family))
		return refuse_kind(&c, family, type, protocol, ERROR(EAFNOSUPPORT));
	if (type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP))
		return 0;
	if (type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP))
		return 0;
	if (type == SOCK_STREAM || type == SOCK_DGRAM) /* MPTCP: programs then take TCP */
		return refuse_kind(&c, family, type, protocol, ERROR(EPROTONOSUPPORT));
	return refuse_kind(&c, family, type, protocol, ERROR(EPERM));
}

/*
 * Options that change the host's filters, send packets elsewhere than to their
 * address, or take a port beside another socket.
 */
static __always_inline bool changes_route(int level, int option)
{
	if (level == SOL_IP)
		return option == IP_OPTIONS;
	return level == SOL_IPV6 &&
	       (option == IPV6_RTHDR || option == IPV6_2292RTHDR || option == IPV6_2292PKTOPTIONS);
}

/* Netfilter's numbers, which iptables, ebtables, arptables, IPVS and mrouted use. */
static __always_inline bool changes_host(int level, int option)
{
	if (level == SOL_IP)
		return option >= 64;
	return level == SOL_IPV6 && (option == 64 || option == 65 || option >= 128);
}

/* Options after which others may have the same port. */
static __always_inline bool shares_port(int level, int option)
{
	return level == SOL_SOCKET && (option == SO_REUSEADDR || option == SO_REUSEPORT ||
				       option == SO_BINDTODEVICE || option == SO_BINDTOIFINDEX);
}

static __always_inline void note_sharing(struct sock *sk)
{
	struct owner *owner = owner_of(sk);

	if (owner)
		owner->flags |= OWNER_SHARES;
	forget_socket((__u64)sk);
}

SEC("lsm/socket_setsockopt")
int BPF_PROG(socket_setsockopt, struct socket *sock, int level, int option, int ret)
{
	struct current_jail c;
	struct sock *sk = sock->sk;
	const struct network *network;
	__u32 slot;

	if (ret || !sk || !is_inet(sk->__sk_common.skc_family) ||
	    !jailed(&c, HOOK_SOCKET_SETSOCKOPT))
		return ret;
	if (changes_host(level, option) || (level == SOL_TCP && option == TCP_REPAIR)) {
		refuse_peer(&c, NULL, WHY_OPTION, -EPERM);
		return ERROR(EPERM);
	}
	if (shares_port(level, option) && sk->sk_protocol == IPPROTO_UDP)
		note_sharing(sk);
	slot = c.slot;
	network = bpf_map_lookup_elem(&networks, &slot);
	if (network && (network->mode == NETWORK_HOST || network->apart))
		return 0;
	if (changes_route(level, option)) {
		refuse_peer(&c, NULL, WHY_ROUTE, -EPERM);
		return ERROR(EPERM);
	}
	if (level == SOL_SOCKET && option == SO_REUSEPORT) {
		refuse_peer(&c, NULL, WHY_PORT, -ENOPROTOOPT);
		return ERROR(ENOPROTOOPT);
	}
	return 0;
}

#define MAX_REQUESTS 32

/* A jail asks rtnetlink and changes nothing, whatever capabilities it has. */
static __noinline int changes_by_netlink(const struct sk_buff *skb)
{
	void *at = BPF_CORE_READ(skb, data);
	__u32 left = BPF_CORE_READ(skb, len);
	struct {
		__u32 size;
		__u16 type;
		__u16 flags;
	} request;

	if (BPF_CORE_READ(skb, data_len))
		return 1;
	for (int i = 0; i < MAX_REQUESTS; i++) {
		if (left < 16)
			return 0; /* the kernel stops here as well */
		if (bpf_probe_read_kernel(&request, sizeof(request), at))
			return 1;
		if (request.size < 16 || request.size > left)
			return 0;
		if (request.type >= RTM_BASE && (request.type & 3) != 2) /* not RTM_GET* */
			return 1;
		request.size = (request.size + 3) & ~3U;
		if (request.size >= left)
			return 0;
		left -= request.size;
		at += request.size;
	}
	return 1;
}

SEC("lsm/netlink_send")
int BPF_PROG(netlink_send, struct sock *sk, struct sk_buff *skb, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_NETLINK_SEND))
		return ret;
	if (sk->sk_protocol == NETLINK_ROUTE && !changes_by_netlink(skb))
		return 0;
	refuse_peer(&c, NULL, WHY_NETLINK, -EPERM);
	return ERROR(EPERM);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose a socket is, and Unix sockets: a jail talks to sockets that were made in
 * it, and to those of the host's that a rule names by path.
 */
#ifndef AGENT_LOCK_SOCKET_BPF_H
#define AGENT_LOCK_SOCKET_BPF_H

#include "label.bpf.h"

static __always_inline void mark_socket(struct current_jail *c, struct sock *sk)
{
	struct owner *owner;

	owner = bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (owner)
		owner->cookie = c->jail->cookie;
}

/* A socket without the mark counts as the host's, so a failure here only denies. */
SEC("lsm/socket_post_create")
int BPF_PROG(socket_post_create, struct socket *sock, int family, int type, int protocol, int kern,
	     int ret)
{
	struct current_jail c;
	struct sock *sk = sock->sk;

	if (ret || kern || !sk || !jailed(&c, 0))
		return ret;
	mark_socket(&c, sk);
	return 0;
}

/* accept(2) gives a socket that nobody created. */
SEC("lsm/sock_graft")
int BPF_PROG(sock_graft, struct sock *sk, struct socket *parent)
{
	struct current_jail c;

	if (sk && jailed(&c, 0))
		mark_socket(&c, sk);
	return 0;
}

static __always_inline int check_peer(struct current_jail *c, struct sock *other)
{
	struct owner *owner = bpf_sk_storage_get(&sockets, other, NULL, 0);
	struct dentry *dentry;
	struct unix_sock *unix;
	__u32 given;

	if (owner && owner->cookie && owner->cookie == c->jail->cookie)
		return 0;
	unix = bpf_skc_to_unix_sock(other);
	if (!unix)
		return refuse(c, NULL, RIGHT_CONNECT, 0, ERROR(ECONNREFUSED));
	dentry = unix->path.dentry;
	if (!dentry)
		return refuse(c, NULL, RIGHT_CONNECT, 0, ERROR(ECONNREFUSED));
	given = rights_cold(c->jail, dentry);
	if (given & RIGHT_CONNECT)
		return 0;
	if (given & RIGHT_ANY || c->jail->flags & JAIL_SHOW_OUTSIDE)
		return refuse(c, dentry, RIGHT_CONNECT, given, ERROR(EACCES));
	return refuse(c, dentry, RIGHT_CONNECT, given, ERROR(ENOENT));
}

SEC("lsm/unix_stream_connect")
int BPF_PROG(unix_stream_connect, struct sock *sock, struct sock *other, struct sock *newsk,
	     int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_UNIX_STREAM_CONNECT))
		return ret;
	return check_peer(&c, other);
}

SEC("lsm/unix_may_send")
int BPF_PROG(unix_may_send, struct socket *sock, struct socket *other, int ret)
{
	struct current_jail c;
	struct sock *sk = other->sk;

	if (ret || !jailed(&c, HOOK_UNIX_MAY_SEND))
		return ret;
	if (!sk)
		return refuse(&c, NULL, RIGHT_CONNECT, 0, ERROR(ECONNREFUSED));
	return check_peer(&c, sk);
}

#endif

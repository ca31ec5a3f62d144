/* How the handles of Kafka clients come here: this object is a plugin of librdkafka too (`plugin.library.paths`), and is told
 * of each client that is made with it. The thread that makes a client asks for the handle right after it.
 *
 * A handle is valid for as long as its client lives and is not closed. Python keeps both together.
 *
 * Errors of a partition, such as that its topic is gone, come by its queue and are told by a callback to whoever takes from that
 * queue. confluent-kafka ends the process where its callback is called outside of its own calls. So each client gets ours, which
 * passes on what does not come while this thread takes messages; the rest Python hears from the group and from metadata. */
#include "kafka.h"

#include <stdlib.h>
#include <string.h>

#ifndef NATIVE_SOURCE
#define NATIVE_SOURCE ""
#endif

Library kafka;

static _Thread_local Client *newest;

/* The sources that all of this was compiled from. */
const char *native_source(void)
{
    return NATIVE_SOURCE;
}

/* The functions of librdkafka, once, before any client is made with this plugin. */
void kafka_bind(const void *functions)
{
    memcpy(&kafka, functions, sizeof kafka);
}

_Thread_local bool kafka_taking;

static OnError *theirs; /* confluent-kafka's, the same for all its clients */

static void on_error(Client *client, int error, const char *why, void *ours)
{
    if (!kafka_taking) {
        theirs(client, error, why, ours);
    }
}

/* Put our callback in the place of the one that a client has: it is told as the address of a function. */
static void watch_errors(void *settings)
{
    char text[32];
    size_t room = sizeof text;
    if (kafka.settings_get(settings, "error_cb", text, &room) != 0) {
        return;
    }
    OnError *found = (OnError *)(uintptr_t)strtoull(text, NULL, 16);
    if (found && found != on_error) {
        theirs = found;
        kafka.settings_on_error(settings, on_error);
    }
}

/* `settings` are the client's own by now, and nobody uses them yet. */
static int on_new(Client *client, const void *settings, void *ours, char *said, size_t room)
{
    (void)ours, (void)said, (void)room;
    watch_errors((void *)settings);
    newest = client;
    return 0;
}

/* The name that librdkafka looks for in a plugin. */
int conf_init(void *settings, void **ours, char *said, size_t room)
{
    (void)ours, (void)said, (void)room;
    return kafka.add_on_new(settings, "scorestream", on_new, NULL);
}

/* The client that this thread made last; NULL where it has been asked for already. */
Client *kafka_newest(void)
{
    Client *client = newest;
    newest = NULL;
    return client;
}

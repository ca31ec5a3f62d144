/* How the handles of Kafka clients come here: this object is a plugin of librdkafka too (`plugin.library.paths`), and is told
 * of each client that is made with it. The thread that makes a client asks for the handle right after it.
 *
 * A handle is valid for as long as its client lives and is not closed. Python keeps both together. */
#include "kafka.h"

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

static int on_new(Client *client, const void *settings, void *ours, char *said, size_t room)
{
    (void)settings, (void)ours, (void)said, (void)room;
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

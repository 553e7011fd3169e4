/* A window of the plugin's that shows nothing: it does what stands in the file "do" beside its bundle, and writes what
 * the plugin tells into "told". A host that loads it (jalv) so sends the plugin the messages of a user at a chooser. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *uri; void *data; } Feature;
typedef struct { void *handle; uint32_t (*map)(void *, const char *); } Map;
typedef void (*Write)(void *, uint32_t, uint32_t, uint32_t, const void *);
typedef struct { uint32_t size, type; } Atom;

typedef struct {
    Map *map;
    Write write;
    void *to;
    char wanted[4096], told[4096];
} Window;

#define ATOM "http://lv2plug.in/ns/ext/atom#"
#define PATCH "http://lv2plug.in/ns/ext/patch#"
enum { OUTPUT = 3, CONTROL = 5 };

static uint32_t number(Window *w, const char *uri) { return w->map->map(w->map->handle, uri); }

static void *instantiate(const void *d, const char *plugin, const char *bundle, Write write, void *to, void **widget,
                         const Feature *const *features) {
    (void)d, (void)plugin;
    Window *w = calloc(1, sizeof *w);
    for (; *features; features++)
        if (!strcmp((*features)->uri, "http://lv2plug.in/ns/ext/urid#map")) w->map = (*features)->data;
    w->write = write, w->to = to, *widget = NULL;
    snprintf(w->wanted, sizeof w->wanted, "%s/do", bundle);
    snprintf(w->told, sizeof w->told, "%s/told", bundle);
    return w;
}

static void cleanup(void *w) { free(w); }

/* patch:Set of one file. */
static void set(Window *w, const char *key, const char *path) {
    char uri[64];
    snprintf(uri, sizeof uri, "urn:quietcores:strip#%s", key);
    uint32_t length = strlen(path) + 1, room = (length + 7) & ~7u;
    uint32_t *m = calloc(1, 56 + room);
    uint32_t head[] = {48 + room, number(w, ATOM "Object"), 0, number(w, PATCH "Set"),
                       number(w, PATCH "property"), 0, 4, number(w, ATOM "URID"), number(w, uri), 0,
                       number(w, PATCH "value"), 0, length, number(w, ATOM "Path")};
    memcpy(m, head, sizeof head);
    memcpy(m + 14, path, length);
    w->write(w->to, CONTROL, 56 + room, number(w, ATOM "eventTransfer"), m);
    free(m);
}

static void port_event(void *window, uint32_t port, uint32_t size, uint32_t protocol, const void *data) {
    Window *w = window;
    const uint32_t *m = data;
    if (protocol != number(w, ATOM "eventTransfer") || size < 16 || m[1] != number(w, ATOM "Object")) return;
    (void)port;
    FILE *f = fopen(w->told, "a");
    if (!f) return;
    if (m[3] == number(w, "http://lv2plug.in/ns/ext/state#StateChanged")) fputs("changed\n", f);
    if (m[3] == number(w, PATCH "Set") && size > 56) {
        const char *key = "?", *keys[] = {"strip", "amp", "ir"};
        for (int n = 0; n < 3; n++) {
            char uri[64];
            snprintf(uri, sizeof uri, "urn:quietcores:strip#%s", keys[n]);
            if (m[8] == number(w, uri)) key = keys[n];
        }
        fprintf(f, "%s %s\n", key, (const char *)(m + 14));
    }
    fclose(f);
}

static int idle(void *window) {
    Window *w = window;
    FILE *f = fopen(w->wanted, "r");
    if (!f) return 0;
    char line[4200], key[16], path[4096];
    float level;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "output %f", &level) == 1) w->write(w->to, OUTPUT, 4, 0, &level);
        else if (sscanf(line, "%15s %4095[^\n]", key, path) == 2) set(w, key, path);
    }
    fclose(f);
    remove(w->wanted);
    return 0;
}

static int show(void *w) { return (void)w, 0; }

static const void *extension_data(const char *uri) {
    static const struct { int (*idle)(void *); } idles = {idle};
    static const struct { int (*show)(void *), (*hide)(void *); } shows = {show, show};
    if (!strcmp(uri, "http://lv2plug.in/ns/extensions/ui#idleInterface")) return &idles;
    if (!strcmp(uri, "http://lv2plug.in/ns/extensions/ui#showInterface")) return &shows;
    return NULL;
}

const void *lv2ui_descriptor(uint32_t index) {
    static const struct {
        const char *uri;
        void *(*instantiate)(const void *, const char *, const char *, Write, void *, void **, const Feature *const *);
        void (*cleanup)(void *);
        void (*port_event)(void *, uint32_t, uint32_t, uint32_t, const void *);
        const void *(*extension_data)(const char *);
    } window = {"urn:test:window", instantiate, cleanup, port_event, extension_data};
    return index ? NULL : &window;
}
